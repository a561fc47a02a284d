"""A rotation as a product with a matrix for each row is the rotation pair by pair."""

from __future__ import annotations

import pytest
import torch

from medusa_core.model.lean_model import PlainRotary
from medusa_core.model.rotary import Turns, rotated, rotations


@pytest.mark.parametrize(("size", "width"), [(64, 64), (64, 32), (8, 8), (96, 24)])
def test_matrices_turn_as_pairs_do(size, width):
    table = rotations(PlainRotary(10_000.0, width), 400, torch.device("cpu"))
    positions = torch.tensor([0, 1, 7, 7, 399])
    x = torch.randn(len(positions), 3, size, generator=torch.Generator().manual_seed(size))
    turns = Turns(size, width, x.device).by(table.at(positions))
    torch.testing.assert_close(torch.bmm(x, turns), rotated(x, table.at(positions)), atol=1e-5, rtol=1e-5)
    assert torch.equal(Turns(size, width, x.device).by(table.of_one(399))[0], turns[-1])
    # A turn keeps lengths and leaves what lies behind the width.
    torch.testing.assert_close(torch.bmm(x, turns).norm(dim=-1), x.norm(dim=-1))
    assert torch.equal(torch.bmm(x, turns)[..., width:], x[..., width:])
