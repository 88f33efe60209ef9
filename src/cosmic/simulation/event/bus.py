"""The bus between an NPU and its network interface, modelled if the system sets ASTRA-sim's `model-shared-bus`.

Each side of the bus sends one packet at a time. LogGP's parameters: overhead *o* to hand a packet over, gap *g* between
two packets, gap *G* per byte, latency *L*. The receiver may process a packet and may send it back. The NPU's side
crosses a second, faster bus to its memory each time; packets there are neither processed nor sent back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from cosmic.simulation.event.clock import Action, Clock
from cosmic.simulation.event.inputs import SharedBus

MEMORY_GAP_NS_PER_BYTE = 0.0038
FAIR_READS = 8
"""After this many packets in a row the other side goes first."""
FREE, SENDING, RECEIVING = range(3)


@dataclass(slots=True)
class _Packet:
    size: int
    processed: bool
    sent_back: bool
    done: Action


class Bus:
    """Both sides of a rank's bus."""

    def __init__(self, clock: Clock, entity: int, spec: SharedBus, reduction_delay: int) -> None:
        def side(spec: SharedBus) -> _Side:
            return _Side(clock, entity, spec, reduction_delay)

        self._npu, self._interface = side(spec), side(spec)
        inner = replace(spec, gap_ns_per_byte=MEMORY_GAP_NS_PER_BYTE)
        memory = side(inner), side(inner)
        for one, other in ((self._npu, self._interface), memory):
            one.partner, other.partner = other, one
        self._npu.memory = memory

    def request(self, size: int, *, outward: bool, processed: bool, sent_back: bool, done: Action) -> None:
        """Move a packet from the NPU *outward*, or towards it, and call *done* when it arrives."""
        side = self._npu if outward else self._interface
        side.request(_Packet(size, processed, sent_back, done))


class _Side:
    """One side of a bus."""

    partner: _Side

    def __init__(self, clock: Clock, entity: int, spec: SharedBus, reduction_delay: int) -> None:
        self._clock, self._entity, self._spec, self._reduction_delay = clock, entity, spec, reduction_delay
        self.memory: tuple[_Side, _Side] | None = None
        """The NPU's and the memory's side of the bus to memory, if this side has one."""
        self._state = self._before = FREE
        self._last = self._reads = 0
        self._processing = False
        self._sends: deque[_Packet] = deque()
        self._receives: deque[_Packet] = deque()
        self._to_process: deque[_Packet] = deque()

    def request(self, packet: _Packet) -> None:
        """Send a packet to the other side, from memory if there is one."""
        if self.memory is not None:
            self.memory[1].request(_Packet(packet.size, False, False, lambda _: self._send_later(packet)))
            return
        self._sends.append(packet)
        self._send_next()

    def _send_later(self, packet: _Packet) -> None:
        self._sends.append(packet)
        self._send_next()

    def _after(self, delay: float, action: Action) -> None:
        self._clock.of_rank(self._entity, int(delay), action, None)

    def _send_next(self) -> None:
        if self._state != FREE or not self._sends:
            return
        other = self.partner
        if self._reads > FAIR_READS and other._sends and other._reads <= FAIR_READS:
            other._send_next()
            return
        spec, since = self._spec, self._clock.now - self._last
        rested = self._before != SENDING or spec.overhead_ns + since > spec.gap_ns
        offset = spec.overhead_ns if rested else spec.gap_ns - since
        packet = self._sends.popleft()
        serial = spec.gap_ns_per_byte * max(0, packet.size - 1)
        other._receive(packet, offset + serial + spec.latency_ns + spec.overhead_ns)
        self._state = SENDING
        self._after(offset + serial, self._sent)

    def _sent(self, _: Any) -> None:
        self._last, self._before, self._state = self._clock.now, self._state, FREE
        self._reads += 1
        self._send_next()

    def _receive(self, packet: _Packet, delay: float) -> None:
        self._receives.append(packet)
        self._before, self._state = self._state, RECEIVING
        self._after(delay, self._received)
        self._reads = 0

    def _received(self, _: Any) -> None:
        self._last, self._before = self._clock.now, self._state
        if len(self._receives) < 2:
            self._state = FREE
        packet = self._receives.popleft()
        if packet.processed:
            packet.processed = False
            self._through_memory(packet, self._process)
            self._process_next()
        else:
            self._pass_on(packet)
        self._send_next()

    def _through_memory(self, packet: _Packet, then: Callable[[_Packet], None], *, back: bool = True) -> None:
        """Take a packet to memory (and *back*), if there is one, then call *then*."""
        if self.memory is None:
            then(packet)
        else:
            self.memory[0].request(_Packet(packet.size, False, back, lambda _: then(packet)))

    def _pass_on(self, packet: _Packet) -> None:
        if packet.sent_back:
            packet.sent_back = False
            self._through_memory(packet, self._return)
        else:
            self._through_memory(packet, self._retire, back=False)

    def _return(self, packet: _Packet) -> None:
        self._sends.append(packet)
        self._send_next()

    def _retire(self, packet: _Packet) -> None:
        packet.done(None)
        self._send_next()

    def _process(self, packet: _Packet) -> None:
        self._to_process.append(packet)
        self._process_next()
        self._send_next()

    def _process_next(self) -> None:
        if not self._processing and self._to_process:
            self._processing = True
            self._after(self._to_process[0].size // 100 * self._reduction_delay + 50, self._processed)

    def _processed(self, _: Any) -> None:
        self._processing = False
        self._pass_on(self._to_process.popleft())
        self._process_next()
        self._send_next()
