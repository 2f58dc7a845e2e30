"""The first run, as one conversation: a model, one real request, a sandbox, the rules of Codex (CLI-01)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import typer

from bubbles.cli.report import run, styled, visible
from bubbles.cli.setup import asking
from bubbles.cli.setup.checking import Warming, ask_once
from bubbles.cli.setup.contract import Agreed, Answered, Offer, Refused
from bubbles.cli.setup.looking import address_of, find, named, place_of, served
from bubbles.cli.setup.pasting import kept, pasted
from bubbles.cli.setup.sandboxes import GIVES, Tried, strongest, try_sandboxes
from bubbles.cli.setup.writing import context_to_write, settings_with
from bubbles.providers.registry import REGISTRY

if TYPE_CHECKING:
    from bubbles.config.load import Places
    from bubbles.config.schema import FileSettings, Settings

PASTE = "k"
SMALL_CONTEXT = 16_000
"""Tokens below which there is little room beside the prompt and the tools."""
LEFT = "Nothing was written."


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    places: Places
    held: FileSettings | None
    """What the file says; None: there is none, or a fresh one is wanted."""
    fresh: bool
    """Whether a file that is there is to be begun anew."""
    program: str
    """How the person calls Bubbles."""
    imports: Warming = field(default_factory=Warming)

    def hold(self) -> Agreed:
        """Raises typer.Abort when the person leaves, and ConfigError for settings that cannot be read."""
        settings = self._settings(None)
        try:
            return self._held(settings)
        except (EOFError, KeyboardInterrupt) as error:
            print(f"\n{LEFT}")
            self.imports.abandon(status=130)
            raise typer.Abort from error
        finally:
            self.imports.wait()

    def _settings(self, offer: Offer | None) -> Settings:
        return settings_with(self.places, offer, fresh=self.fresh)

    def _held(self, settings: Settings) -> Agreed:
        print("Bubbles needs a model to think with and a place where commands run. Enter takes what is in [brackets];")
        print("Ctrl-C leaves, and then nothing is written.")
        asking.heading("Model")
        offer = self._model(settings)
        asking.heading("Sandbox")
        sandbox = self._sandbox(settings)
        if said := self._rules(settings):
            asking.heading("Rules")
            print(visible(said))
        in_keyring = False
        if offer is not None and offer.secret is not None:
            asking.heading("Key")
            offer, in_keyring = kept(offer)
        return Agreed(offer=offer, in_keyring=in_keyring, sandbox=sandbox)

    # -- the model --

    def _model(self, settings: Settings) -> Offer | None:
        """The one that the person takes; None if none."""
        with asking.waiting("looking for keys, logins, and servers on this machine"):
            found = run(find(settings))
        if any(REGISTRY[offer.provider].litellm for offer in found):
            self.imports.begin()
        if found and found[0].settled and (done := self._tried(found[0])) is not None:
            return done
        while True:
            offer = self._chosen(settings, found) if found else self._nothing()
            if offer is None:
                return None
            if (done := self._tried(offer)) is not None:
                return done

    def _nothing(self) -> Offer | None:
        print("No key is in the environment, and no Ollama or vLLM answers on this machine. Export a key, such as")
        print("ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY, and run this again; or paste one now.")
        return pasted(may_skip=True)

    def _chosen(self, settings: Settings, found: list[Offer]) -> Offer:
        width = max(len(offer.name) for offer in found)
        for number, offer in enumerate(found, 1):
            print(f"  {number:>2}  {visible(offer.name.ljust(width))}  {styled(visible(offer.note), 'dim')}")
        while True:
            answer = asking.ask("Which one? A number, a name such as openai/gpt-6.1-sol, or k to paste a key", "1")
            meant = pasted(may_skip=False) if answer.lower() == PASTE else _meant(answer, found, settings)
            if meant is None:
                if answer.lower() != PASTE:
                    print(f"Please answer with a number from 1 to {len(found)}, PROVIDER/MODEL, or k.")
            elif meant.model:
                return meant
            else:
                return self._chosen(settings, self._asked_there(settings, meant) or found)

    def _asked_there(self, settings: Settings, offer: Offer) -> list[Offer]:
        """What a server elsewhere has, now that the person has chosen it."""
        from bubbles.cli.setup.servers import PATIENT_S, look

        address = address_of(settings, offer.provider)
        where = f"at {place_of(address)}"
        ollama = address if offer.provider == "ollama" else None
        with asking.waiting(f"asking {offer.provider} {where}"):
            there = run(look(ollama, None if ollama else address, within_s=PATIENT_S))
        if models := served(settings, offer.provider, there.ollama or there.vllm, where):
            return models
        print(f"{offer.provider} {where} does not answer, or has no model.")
        return []

    def _tried(self, offer: Offer) -> Offer | None:
        """The offer, if it is to be kept; None: another."""
        question = f"{visible(offer.name)} is set. Ask it for one word, to see it answer?"
        if offer.settled and not asking.agrees(question):
            return offer
        while True:
            settings = self._settings(offer)
            with asking.waiting(f"asking {offer.name} for one word"):
                if REGISTRY[offer.provider].litellm:
                    self.imports.begin()
                    self.imports.wait()
                outcome = run(ask_once(settings))
            if isinstance(outcome, Answered):
                return self._told(offer, outcome)
            _show_refusal(offer, outcome)
            region = _other_region(offer, outcome)
            words = ["again", "other", *(["region"] if region else []), "keep"]
            more = f", [r]egion: {region}" if region else ""
            match asking.choose(f"Try [a]gain, an[o]ther{more}, or [k]eep it all the same?", words, "other"):
                case "other":
                    return None
                case "keep":
                    return offer
                case "region":
                    offer = replace(offer, base_url=region, settled=False)
                case _:
                    pass

    def _told(self, offer: Offer, outcome: Answered) -> Offer:
        print(f"{styled(visible(offer.name), 'green')} answered in {outcome.seconds:.1f} s, and takes tools.")
        offer = replace(offer, context_tokens=outcome.context_tokens or offer.context_tokens)
        if (context := context_to_write(offer, self.held)) is not None:
            print(f"Its server takes {context:,} tokens at once: agents.defaults.contextTokens will say so.")
        if offer.context_tokens is not None and offer.context_tokens < SMALL_CONTEXT:
            mend = "OLLAMA_CONTEXT_LENGTH=32768" if offer.provider == "ollama" else "a larger --max-model-len"
            print(f"{offer.context_tokens:,} tokens are few for an assistant with tools: start the server with {mend}.")
        return offer

    # -- the sandbox --

    def _sandbox(self, settings: Settings) -> str | None:
        """The backend to be written; None leaves what is there."""
        sandbox = settings.tools.sandbox
        chosen = sandbox.backend if "backend" in sandbox.model_fields_set else None
        found = try_sandboxes(settings, chosen)
        if chosen is not None:
            tried = next((each for each in found if each.name == chosen), None)
            if tried is None or tried.usable:
                print(f"{visible(chosen)}, as it is set{'' if tried is None else _measure(tried)}.")
                return None
            print(f"{chosen} is set, and cannot be used: {visible(tried.why_not)}")
        best = strongest(found)
        _show_sandboxes(found, best, self.program)
        while True:
            answer = asking.ask("Where are commands to run?", best.name).lower()
            if any(each.name == answer and each.usable for each in found):
                return answer
            names = ", ".join(each.name for each in found if each.usable)
            print(f"Please take one of {names}.")

    def _rules(self, settings: Settings) -> str | None:
        from bubbles.cli.setup.codex import said_of_rules

        return said_of_rules(settings, self.program)


def _meant(answer: str, found: list[Offer], settings: Settings) -> Offer | None:
    """By its number or its name."""
    if answer.isascii() and answer.isdigit():
        place = int(answer[:4]) - 1
        return found[place] if 0 <= place < len(found) else None
    return named(answer, found, settings.host_env)


def _show_refusal(offer: Offer, outcome: Refused) -> None:
    category = f"{outcome.category} " if outcome.category is not None else ""
    words = f"({visible(outcome.words)})" if category else visible(outcome.words)
    print(f"{styled(visible(offer.name), 'red')} gave no answer: {category}{words}")


def _other_region(offer: Offer, outcome: Refused) -> str | None:
    """Where the same service has other keys, if that may be why this one does not count."""
    from bubbles.providers.contract import Category

    entry = REGISTRY[offer.provider]
    refused = outcome.category is Category.AUTHENTICATION and not offer.settled
    if not refused or entry.elsewhere is None:
        return None
    return entry.base_url if offer.base_url == entry.elsewhere else entry.elsewhere


def _measure(tried: Tried) -> str:
    return "" if tried.held is None else f": {tried.held} of {tried.tried} ways out are closed"


def _show_sandboxes(found: list[Tried], best: Tried, program: str) -> None:
    width = max(len(each.name) for each in found)
    for each in found:
        if not each.hard and best.hard and each is not best:
            continue  # there is better
        state = f"works{_measure(each)}" if each.usable else f"no: {each.why_not.replace('bubbles ', f'{program} ')}"
        if each is best and each.hard and each.held is None:
            state += f"; there was no time to measure it, as '{program} sandbox doctor -b {each.name}' does"
        print(f"  {each.name.ljust(width)}  {visible(state)}")
    print(f"{best.name}: {GIVES.get(best.name, 'as its package says')}.")
