"""Who can reach the page, and what its owner then lets visitors do."""

from __future__ import annotations

import pytest

from medusa_core.errors import MedusaError
from ui.serving.policy import AllowedModel, Exposure, Policy, announcement, policy_of


@pytest.mark.parametrize("host", [None, "", "localhost", "127.0.0.1", "127.0.0.2", "::1", "[::1]"])
def test_on_ones_own_machine_everything_goes(host):
    policy = policy_of({}, host=host)
    assert policy == Policy(public=False, offers=(), training=True, run_seconds=None)
    assert policy.free_choice
    policy.require(AllowedModel("/any/folder"))
    assert announcement(policy) == ""


@pytest.mark.parametrize(
    ("environment", "flags"),
    [
        ({"SPACE_ID": "me/space"}, {}),
        ({}, {"share": True}),
        ({"GRADIO_SHARE": "True"}, {}),
        ({}, {"host": "0.0.0.0"}),
        ({}, {"host": "::"}),
        ({}, {"host": "192.168.1.7"}),
        ({}, {"host": "my-computer"}),
        ({"GRADIO_SERVER_NAME": "0.0.0.0"}, {}),
        ({"GRADIO_ROOT_PATH": "/medusa"}, {}),
        ({"SPACE_ID": "me/space"}, {"host": "127.0.0.1"}),
    ],
)
def test_where_others_can_come_the_owner_decides(environment, flags):
    policy = policy_of(environment, **flags)
    assert policy.public
    assert not policy.training
    assert policy.run_seconds == 120
    assert not policy.free_choice
    with pytest.raises(MedusaError, match="secret is not offered here"):
        policy.require(AllowedModel("/home/me/secret"))
    assert "Others can reach this page. Models: the model it starts with; training: off" in announcement(
        policy
    )


def test_a_flag_goes_before_gradios_variables():
    environment = {"GRADIO_SERVER_NAME": "0.0.0.0", "GRADIO_SHARE": "false"}
    assert Exposure.of(environment, host="127.0.0.1") == Exposure("127.0.0.1", share=False, hosted=False)
    assert Exposure.of(environment) == Exposure("0.0.0.0", share=False, hosted=False)
    assert not policy_of(environment, host="127.0.0.1").public


def test_the_owners_list_is_what_visitors_may_load():
    environment = {"SPACE_ID": "me/space", "MEDUSA_MODELS": "org/base, org/other + org/heads\n\norg/base"}
    policy = policy_of(environment, offers=["org/flag@v1"])
    assert policy.offers == (
        AllowedModel("org/flag@v1"),
        AllowedModel("org/base"),
        AllowedModel("org/other", "org/heads"),
    )
    for offer in policy.offers:
        policy.require(offer)
    with pytest.raises(MedusaError, match=r"org/base\+org/heads is not offered"):
        policy.require(AllowedModel("org/base", "org/heads"))
    assert "org/flag@v1, org/base, org/other+org/heads" in announcement(policy)


@pytest.mark.parametrize("text", ["+heads", "model+", " + "])
def test_an_offer_without_a_name_is_refused(text):
    with pytest.raises(MedusaError, match=r"write MODEL or MODEL\+HEADS"):
        policy_of({}, offers=[text])


def test_training_in_public_is_the_owners_word_but_not_on_a_borrowed_gpu():
    space = {"SPACE_ID": "me/space"}
    assert policy_of(space | {"MEDUSA_TRAINING": "1"}).training
    assert not policy_of(space | {"MEDUSA_TRAINING": "yes"}).training
    assert not policy_of(space | {"SPACES_ZERO_GPU": "true"}).training
    with pytest.raises(MedusaError, match="lends a GPU for less than two minutes"):
        policy_of(space | {"SPACES_ZERO_GPU": "true", "MEDUSA_TRAINING": "1"})
