"""`InputProcessor`: a user's prompt and parameters to requests for the engine core.

Front-end process. Everything that can be wrong with a request is found here, as
InvalidRequestError; the engine is not touched.
"""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec

from framework.core.info import EngineInfo
from framework.frontend.chat import check_messages
from framework.frontend.checks import token_ids as check_token_ids
from framework.frontend.engine_params import engine_params
from framework.frontend.extensions import convert_extensions
from framework.frontend.pooling import (
    check_pools,
    check_room,
    checked_pooling,
    sampling_stand_in,
)
from framework.frontend.processed_request import ProcessedRequest
from framework.frontend.prompts import ParsedPrompt, Prompt, PromptParser
from framework.frontend.tokenizer import Tokenizer
from framework.frontend.validation import validate_metadata, validate_params
from framework.plugins.calls import Calls
from framework.plugins.failure import describe
from hookspecs.config import EngineConfig
from hookspecs.contracts.model import ResolvedModel
from hookspecs.contracts.worker import WorkerCapability
from hookspecs.errors import ConfigError, InvalidRequestError, RequestFailedError
from hookspecs.events import RequestReceived, RequestRejected
from hookspecs.types.pooling import PoolingParams
from hookspecs.types.request import EngineCoreRequest
from hookspecs.types.sampling import SamplingLimits, SamplingParams

__all__ = ["InputProcessor"]


class InputProcessor:
    """Validates, tokenises, filters, fills in defaults. One thread."""

    def __init__(
        self,
        config: EngineConfig,
        model: ResolvedModel,
        tokenizer: Tokenizer | None,
        engine_info: EngineInfo,
        *,
        calls: Calls,
        request_options: Mapping[str, type[msgspec.Struct]] | None = None,
        logits_processors: Collection[str] = (),
        limits: SamplingLimits | None = None,
        client_index: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`request_options`: see PluginManager. `logits_processors`: names of the providers of
        that kind. ConfigError if the model's recommended sampling
        parameters are not valid: that is told at start, not to every request."""
        self.config = config
        self.model = model
        self.tokenizer = tokenizer
        self.engine_info = engine_info
        self.limits = limits or SamplingLimits()
        self._calls = calls
        self._request_options = request_options or {}
        self._logits_processors = frozenset(logits_processors)
        self._client_index = client_index
        self._clock = clock
        self._handles = itertools.count()
        self._parser = PromptParser(
            tokenizer,
            vocab_size=model.info.vocab_size,
            hidden_size=model.info.hidden_size,
            max_model_len=engine_info.max_model_len,
            accepts_embeds=WorkerCapability.PROMPT_EMBEDS in engine_info.capabilities,
        )
        self._end_tokens = [
            token_id for token_id in model.info.eos_token_ids if token_id < model.info.vocab_size
        ]
        self._defaults = self._recommended_params()

    def default_params(self) -> SamplingParams:
        """What the model's authors recommend; used for requests that come without parameters.
        Parameters that a caller gives are taken as they are, and not mixed with these."""
        return copy.deepcopy(self._defaults)

    def chat_prompt(
        self,
        messages: list[dict[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] = (),
        template_arguments: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The prompt of a conversation: the rendered text and its token ids. The template
        writes the special tokens, so none are added."""
        checked = check_messages(messages)
        if self.tokenizer is None:
            raise InvalidRequestError(
                "the model has no tokenizer, so it has no chat template", param="messages"
            )
        text = self.tokenizer.render_chat(
            checked,
            add_generation_prompt=add_generation_prompt,
            tools=tools,
            template_arguments=template_arguments,
        )
        ids = self._parser.encode("messages", text, add_special_tokens=False)
        return {"prompt": text, "prompt_token_ids": ids}

    def tokenize(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text that may become a prompt. Thread-safe."""
        return self._parser.encode("prompt", text, add_special_tokens=add_special_tokens)

    def detokenize(self, token_ids: Sequence[int]) -> str:
        """The text of token ids, special tokens included. Thread-safe."""
        if self.tokenizer is None:
            raise InvalidRequestError("the model has no tokenizer", param="tokens")
        check_token_ids("tokens", token_ids, self.model.info.vocab_size)
        return self.tokenizer.decode(token_ids, skip_special_tokens=False)

    def piece_ids(self, piece: Prompt, *, first: bool) -> list[int]:
        """Token ids of one piece of a prompt that comes in pieces. Thread-safe."""
        if isinstance(piece, str):
            return self.tokenize(piece, add_special_tokens=first)
        parsed = self._parser.parse(piece)
        if parsed.embeds is not None:
            raise InvalidRequestError(
                "a piece of a prompt can not be embeddings; give text or token ids",
                param="prompt",
            )
        return parsed.token_ids

    def process(
        self,
        request_id: str,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        priority: int = 0,
        tenant: str = "",
        deadline: float | None = None,
        cache_salt: str = "",
        labels: dict[str, str] | None = None,
        trace_headers: dict[str, str] | None = None,
        arrival_time: float | None = None,
    ) -> ProcessedRequest:
        """The request in the engine's form. `deadline`, `arrival_time`: seconds, monotonic clock.

        A `cache_salt` in the prompt wins over the argument. InvalidRequestError for anything
        wrong with the request, or when a filter rejects it; RequestFailedError when a filter
        raises. The caller's `params` are not changed.
        """
        return self._process(
            request_id,
            prompt,
            self._defaults if params is None else params,
            None,
            priority=priority,
            tenant=tenant,
            deadline=deadline,
            cache_salt=cache_salt,
            labels=labels,
            trace_headers=trace_headers,
            arrival_time=arrival_time,
        )

    def process_pooling(
        self,
        request_id: str,
        prompt: Prompt,
        params: PoolingParams | None = None,
        *,
        priority: int = 0,
        tenant: str = "",
        cache_salt: str = "",
        labels: dict[str, str] | None = None,
        trace_headers: dict[str, str] | None = None,
        arrival_time: float | None = None,
    ) -> ProcessedRequest:
        """As `process`, for a request that pools its prompt to one vector: the RequestOutput
        with which it ends has an `embedding`. UnsupportedFeatureError if the worker gives
        none."""
        check_pools(self.engine_info)
        return self._process(
            request_id,
            prompt,
            sampling_stand_in(),
            self._checked_pooling(params),
            priority=priority,
            tenant=tenant,
            deadline=None,
            cache_salt=cache_salt,
            labels=labels,
            trace_headers=trace_headers,
            arrival_time=arrival_time,
        )

    def _process(
        self,
        request_id: str,
        prompt: Prompt,
        params: SamplingParams,
        pooling: PoolingParams | None,
        *,
        priority: int,
        tenant: str,
        deadline: float | None,
        cache_salt: str,
        labels: dict[str, str] | None,
        trace_headers: dict[str, str] | None,
        arrival_time: float | None,
    ) -> ProcessedRequest:
        arrival = self._clock() if arrival_time is None else arrival_time
        validate_metadata(
            request_id,
            priority=priority,
            tenant=tenant,
            deadline=deadline,
            cache_salt=cache_salt,
            labels=labels,
            trace_headers=trace_headers,
            arrival_time=arrival_time,
        )
        params = self._checked_copy(request_id, params)
        parsed = self._parser.parse(prompt)
        event = self._filtered(
            RequestReceived(
                request_id=request_id,
                prompt_token_ids=parsed.token_ids,
                params=params,
                tenant=tenant,
                priority=priority,
                labels=dict(labels or {}),
                pooling=pooling,
            ),
            parsed,
        )
        num_prompt_tokens = len(event.prompt_token_ids)
        if event.pooling is not None:
            check_room(num_prompt_tokens, self.engine_info)
            params, end_tokens = sampling_stand_in(), []
            children = [params]
        else:
            params = event.params
            end_tokens = [] if params.ignore_eos else self._end_tokens
            children = engine_params(
                params,
                num_prompt_tokens=num_prompt_tokens,
                end_tokens=end_tokens,
                vocab_size=self.model.info.vocab_size,
                engine_info=self.engine_info,
                tokenizer=self.tokenizer,
            )
        given = params.stop_token_ids or ()
        template = EngineCoreRequest(
            request_id="",
            handle=-1,
            prompt_token_ids=event.prompt_token_ids,
            sampling_params=children[0],
            arrival_time=arrival,
            eos_token_id=end_tokens[0] if end_tokens else None,
            client_index=self._client_index,
            priority=event.priority,
            tenant=event.tenant,
            deadline=deadline,
            cache_salt=parsed.cache_salt or cache_salt,
            prompt_embeds=parsed.embeds,
            external_request_id=request_id,
            labels=event.labels,
            trace_headers=dict(trace_headers or {}),
            pooling=event.pooling,
        )
        return ProcessedRequest(
            request_id=request_id,
            prompt=parsed.text if event.prompt_token_ids is parsed.token_ids else None,
            prompt_token_ids=event.prompt_token_ids,
            params=params,
            requests=[self._with_id(template, child) for child in children],
            arrival_time=arrival,
            model_end_tokens=frozenset(end_tokens).difference(given),
        )

    def _checked_pooling(self, params: PoolingParams | None) -> PoolingParams:
        return checked_pooling(params, self.model.info.hidden_size)

    def _validate(self, params: SamplingParams) -> None:
        validate_params(
            params,
            limits=self.limits,
            vocab_size=self.model.info.vocab_size,
            has_tokenizer=self.tokenizer is not None,
        )
        if (
            params.prompt_logprobs is not None
            and WorkerCapability.PROMPT_LOGPROBS not in self.engine_info.capabilities
        ):
            raise InvalidRequestError(
                f"prompt_logprobs are not supported by the worker {self.engine_info.worker!r}",
                param="prompt_logprobs",
                value=params.prompt_logprobs,
            )
        processors = self._logits_processors.intersection(params.extensions)
        if processors and WorkerCapability.LOGITS_PROCESSORS not in self.engine_info.capabilities:
            raise InvalidRequestError(
                f"extensions name the logits processors {', '.join(sorted(processors))}, which "
                f"the worker {self.engine_info.worker!r} does not apply: it does not declare the "
                f"capability {WorkerCapability.LOGITS_PROCESSORS}",
                param="extensions",
                value=sorted(processors),
            )

    def _checked_copy(self, request_id: str, params: SamplingParams) -> SamplingParams:
        """A copy that shares nothing, with the extensions as plugins get them."""
        self._validate(params)
        try:
            extensions = convert_extensions(params.extensions, self._request_options)
        except (InvalidRequestError, KeyboardInterrupt):
            raise
        except BaseException as error:  # code of the plugin's struct
            raise RequestFailedError(
                f"checking the extensions failed: {describe(error)}",
                request_id=request_id,
            ) from error
        copied = copy.deepcopy(msgspec.structs.replace(params, extensions={}))
        copied.extensions = extensions
        return copied

    def _recommended_params(self) -> SamplingParams:
        defaults = self.model.info.generation_defaults
        try:
            params = msgspec.convert(defaults, SamplingParams, strict=True)
            self._validate(params)
        except (msgspec.ValidationError, InvalidRequestError) as error:
            raise ConfigError(
                f"the generation defaults of model {self.model.name!r} are not valid: {error}. "
                "Correct them where the model source reads them (generation_config.json)"
            ) from error
        return params

    def _filtered(self, event: RequestReceived, parsed: ParsedPrompt) -> RequestReceived:
        """The event after all filters, checked again: a filter may change what it likes."""
        if not self._calls.has_request_filters:
            return event
        adjusted = self._calls.adjust_request(event)
        if isinstance(adjusted, RequestRejected):
            raise InvalidRequestError(f"the request was rejected: {adjusted.reason}")
        params = self._checked_copy(event.request_id, adjusted.params)
        validate_metadata(
            adjusted.request_id,
            priority=adjusted.priority,
            tenant=adjusted.tenant,
            deadline=None,
            cache_salt="",
            labels=adjusted.labels,
        )
        self._parser.check_ids(adjusted.prompt_token_ids)
        if parsed.embeds is not None and len(adjusted.prompt_token_ids) != len(parsed.embeds):
            raise InvalidRequestError(
                "a filter changed the number of tokens of a prompt given as embeddings",
                param="prompt_embeds",
                value=len(adjusted.prompt_token_ids),
            )
        pooling = None if adjusted.pooling is None else self._checked_pooling(adjusted.pooling)
        return msgspec.structs.replace(adjusted, params=params, pooling=pooling)

    def _with_id(self, template: EngineCoreRequest, params: SamplingParams) -> EngineCoreRequest:
        """An id of its own within the engine, so that a user's id can be used again at once."""
        handle = next(self._handles)
        return msgspec.structs.replace(
            template,
            request_id=f"{template.external_request_id}-{self._client_index}-{handle}",
            handle=handle,
            sampling_params=params,
        )
