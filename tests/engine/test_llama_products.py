"""Products in C on every instruction set: a row's bits in any batch, and sums as in double precision."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from paths import ROOT

from medusa_core.llama.panels import Panels, wide

SHAPES = [(16, 32), (50, 20), (96, 448), (160, 96), (576, 64), (33, 1216)]  # outputs, inputs
DTYPES = [torch.bfloat16, torch.float32]


def run(library, panels, x, threads=1, units=None):
    """x [rows, inputs] by a layer, in rows with the padding that C wants."""
    rows = torch.zeros(-(-len(x) // 16) * 16, wide(panels.inputs), dtype=x.dtype)
    rows[: len(x), : panels.inputs] = x
    result = torch.full((len(x), panels.outputs), torch.nan, dtype=x.dtype if units is None else torch.float)
    addresses = (rows.data_ptr(), len(x), result.data_ptr(), None if units is None else units.data_ptr())
    library.functions.run_product(panels.structure, *addresses, threads)
    return result


def layer(outputs, inputs, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    weight, bias = (
        torch.randn(outputs, inputs, generator=generator),
        torch.randn(outputs, generator=generator),
    )
    return weight.to(dtype), bias.to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_row_has_the_same_bits_in_a_batch_of_any_size(llama_library, subtests, dtype):
    for shape in SHAPES:
        with subtests.test(shape=shape):
            panels = Panels.of(*layer(*shape, dtype))
            x = torch.randn(64, shape[1], generator=torch.Generator().manual_seed(1)).to(dtype)
            alone = torch.cat([run(llama_library, panels, row[None]) for row in x])
            for rows in (*range(1, 26), 40, 63, 64):
                assert run(llama_library, panels, x[:rows]).equal(alone[:rows]), rows
                assert run(llama_library, panels, x[-rows:]).equal(alone[-rows:]), rows


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_outputs_are_those_of_torch_in_double_precision(llama_library, subtests, dtype):
    for shape in SHAPES:
        with subtests.test(shape=shape):
            weight, bias = layer(*shape, dtype)
            x = torch.randn(13, shape[1], generator=torch.Generator().manual_seed(1)).to(dtype)
            for panels, added in ((Panels.of(weight), 0.0), (Panels.of(weight, bias), bias.double())):
                wanted = x.double() @ weight.double().T + added
                error = (run(llama_library, panels, x).double() - wanted).abs()
                rounding = torch.finfo(torch.float32).eps * (x.abs().double() @ weight.abs().double().T)
                assert (error <= torch.finfo(dtype).eps * wanted.abs() + 4 * rounding).all()


def test_products_in_8_bits_are_sums_of_whole_numbers_to_the_bit(llama_library, subtests):
    for shape in SHAPES:
        with subtests.test(shape=shape):
            weight, bias = layer(*shape, torch.bfloat16)
            generator = torch.Generator().manual_seed(1)
            x = torch.randint(-8191, 8192, (64, shape[1]), generator=generator, dtype=torch.int16)
            x[:2] = torch.tensor([[8191], [-8191]])  # with weights of one sign the largest sums
            weight[:16] = weight[:16].abs().amax()
            panels, units = Panels.of(weight, bias, int8=True), torch.rand(64, generator=generator) / 8191
            levels = (weight.float() / (scales := weight.float().abs().amax(1) / 127)[:, None]).round()
            sums = x.double() @ levels.double().T
            wanted = sums.float() * scales * units[:, None] + bias.float()
            for rows in (1, 2, 3, 7, 24, 25, 64):
                found = run(llama_library, panels, x[:rows], units=units)
                torch.testing.assert_close(found, wanted[:rows], rtol=0, atol=0)


def test_the_number_of_threads_changes_no_bit(llama_library):
    panels = Panels.of(*layer(576, 96, torch.bfloat16))
    x = torch.randn(21, 96).bfloat16()
    wanted = run(llama_library, panels, x)
    for threads in (2, 3, 5, 40, 2):
        assert run(llama_library, panels, x, threads).equal(wanted)


def test_threads_that_call_at_once_get_what_they_get_alone(library):
    layers = [Panels.of(*layer(576, 96, torch.bfloat16, seed)) for seed in range(4)]
    x = torch.randn(9, 96).bfloat16()
    wanted = [run(library, panels, x) for panels in layers]
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda number: run(library, layers[number % 4], x, threads=3), range(200))
    assert all(one.equal(wanted[number % 4]) for number, one in enumerate(found))


def test_a_forked_process_has_threads_of_its_own(library):
    panels, x = Panels.of(*layer(576, 96, torch.bfloat16)), torch.randn(9, 96).bfloat16()
    wanted = run(library, panels, x, threads=2)
    child = os.fork()
    if not child:
        signal.alarm(30)  # a child that waits for threads it does not have would never end
        os._exit(0 if run(library, panels, x, threads=2).equal(wanted) else 1)
    assert os.waitpid(child, 0)[1] == 0


@given(outputs=st.integers(1, 70), inputs=st.integers(1, 70), dtype=st.sampled_from(DTYPES))
def test_8_bits_hold_a_weight_to_half_a_step_of_its_output(outputs, inputs, dtype):
    weight, _ = layer(outputs, inputs, dtype)
    weight[outputs // 2] = 0  # an output that says nothing
    step = weight.float().abs().amax(dim=1, keepdim=True) / 127
    allowed = 0.5001 * step + torch.finfo(dtype).eps * weight.float().abs()
    for found in (
        Panels.of(weight, int8=True).unpacked(),
        *Panels.by_turns([weight, weight], [None, None], int8=True).both_unpacked(outputs),
    ):
        assert found.dtype == dtype
        assert ((found.float() - weight.float()).abs() <= allowed).all()


@given(outputs=st.integers(1, 70), inputs=st.integers(1, 70), dtype=st.sampled_from(DTYPES))
def test_what_is_packed_can_be_unpacked(outputs, inputs, dtype):
    weight, _ = layer(outputs, inputs, dtype)
    packed = Panels.of(weight)
    assert packed.unpacked().equal(weight)
    assert packed.numbers.numel() == wide(outputs) * wide(inputs)
    first, second = Panels.by_turns([weight, -weight], [None, None]).both_unpacked(outputs)
    assert first.equal(weight)
    assert second.equal(-weight)


@pytest.mark.slow
@pytest.mark.parametrize("march", ["armv8-a", "armv8.2-a+bf16"])
def test_rows_are_exact_on_arm_too(march, tmp_path):
    compiler, emulator = shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64")
    if compiler is None or emulator is None:
        pytest.skip("no compiler or emulator for arm64")
    folder, program = ROOT / "medusa_core" / "llama", tmp_path / "product_rows"
    flags = ["-static", "-O2", f"-march={march}", "-ffp-contract=off", "-std=gnu11", "-Wno-psabi", "-pthread"]
    sources = [folder / "products.c", folder / "threads.c", ROOT / "tests" / "support" / "product_rows.c"]
    subprocess.run([compiler, *flags, f"-I{folder}", *sources, "-o", program, "-lm"], check=True)
    done = subprocess.run([emulator, "-cpu", "max", program], capture_output=True, text=True, check=True)
    assert all(float(error) < 1e-5 for error in done.stdout.split())
