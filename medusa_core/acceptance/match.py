"""Accept the tokens the model itself chooses.

The model chooses one token at each node, the argmax at temperature 0 and one draw above; a child is
accepted when it is that token. At temperature 0 the output is plain greedy decoding's; above, it has exactly
the model's distribution, because the draw at a node does not depend on which guesses stand below it. One
draw a node, never one a path: sibling paths share their prefix's draw.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from medusa_core.acceptance import NoSettings, RuleInfo
from medusa_core.acceptance.sampling import DrawingRule, require_drawn
from medusa_core.acceptance.verdict import Verdict, longest_path

if TYPE_CHECKING:
    import torch

    from medusa_core.trees.token_tree import TokenTree


class MatchRule(DrawingRule):
    """Greedy acceptance and exact sampling."""

    def __init__(self, temperature: float, settings: NoSettings, generator: torch.Generator) -> None:
        super().__init__(temperature, settings, generator)
        self.by_argmax = temperature <= 0

    def __call__(self, tree: TokenTree, logits: torch.Tensor) -> Verdict:
        """Judge every node against the token chosen at its parent."""
        import torch  # noqa: PLC0415 - reading the settings of rules must not, and a run has

        # One transfer to the host for both, which is the step's synchronisation with the device.
        chosen = self.choose(logits)
        choices, tokens = torch.stack([chosen, tree.tokens.to(chosen.device)]).tolist()
        verdict = matched(tree, tokens, choices)
        require_drawn((choices[node] for node in verdict.path), logits.shape[-1])
        return verdict


def matched(tree: TokenTree, tokens: list[int], choices: list[int], path: list[int] | None = None) -> Verdict:
    """The verdict on ``tokens`` [N], each against the token that was chosen at its parent.

    The path leads to the deepest node that passes with all its ancestors, the lowest number among equals;
    ``path`` is this path where C has already found it.
    """
    passes = [parent < 0 or tokens[node] == choices[parent] for node, parent in enumerate(tree.parents)]
    path = path or longest_path(tree, passes, None)
    return Verdict(
        path=path,
        accepted=[tokens[node] for node in path],
        bonus=choices[path[-1]],
        passes=passes,
        failure="not the model's choice",
    )


RULE = RuleInfo(
    help="keep the tokens that the model itself chooses; the output has exactly its distribution",
    build=MatchRule,
)
