//! Runs nodes in the order of the workspace's drivers.

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::BinaryHeap;

use wire::Instant;

use super::node::Effect;
use super::{Datagram, NodeIndex, Outbox, Overdue, Verdict, World};
use crate::link::Outcome;
use crate::trace::Step;

impl World {
    /// Runs the next event; false if there is none.
    pub fn step(&mut self) -> bool {
        let Some((at, event)) = self.schedule.pop() else {
            return false;
        };
        self.now = self.now.max(at);
        match event {
            Event::Arrival(datagram) => self.arrive(datagram),
            Event::Turn(index) => self.turn(index),
            Event::Wake(index) => self.wake(index),
        }
        true
    }

    /// Runs all events up to and including `deadline`, which is world time afterwards.
    pub fn run_until(&mut self, deadline: Instant) {
        while self.schedule.next_at().is_some_and(|at| at <= deadline) {
            self.step();
        }
        self.now = self.now.max(deadline);
    }

    /// Runs for `span`.
    pub fn run_for(&mut self, span: Duration) {
        self.run_until(self.now + span);
    }

    /// Runs until `predicate` holds, checking after each event; returns world time.
    ///
    /// # Errors
    ///
    /// If it does not hold within `limit`; world time is then at the limit.
    pub fn wait_for(
        &mut self,
        limit: Duration,
        mut predicate: impl FnMut(&Self) -> bool,
    ) -> Result<Instant, Overdue> {
        let deadline = self.now + limit;
        loop {
            if predicate(self) {
                return Ok(self.now);
            }
            if self.schedule.next_at().is_none_or(|at| at > deadline) {
                self.now = self.now.max(deadline);
                return Err(Overdue { at: self.now });
            }
            self.step();
        }
    }

    /// Schedules a turn at `at`, or when the node's stall ends.
    pub(super) fn request_turn(&mut self, index: NodeIndex, at: Instant) {
        let slot = self.slot_mut(index);
        let at = at.max(slot.stalled_until);
        if slot.turn_at.is_none_or(|planned| planned > at) {
            slot.turn_at = Some(at);
            self.schedule.insert(at, Event::Turn(index));
        }
    }

    /// Schedules a wake-up for the node's earliest timer.
    pub(super) fn rearm(&mut self, index: NodeIndex) {
        let now = self.now;
        let slot = self.slot_mut(index);
        let Some(deadline) = slot.deadline() else {
            return;
        };
        let at = deadline.max(now);
        if slot.armed.is_none_or(|armed| armed > at) {
            slot.armed = Some(at);
            self.schedule.insert(at, Event::Wake(index));
        }
    }

    fn arrive(&mut self, datagram: Datagram) {
        let holder = self.network.holder(datagram.destination);
        let Some(index) = holder.filter(|&index| self.slot(index).node.is_some()) else {
            self.trace.note(self.now, Step::Unroutable, &datagram);
            return;
        };
        if self.slot(index).has_room(datagram.bytes.len()) {
            self.trace.note(self.now, Step::Arrived, &datagram);
            let slot = self.slot_mut(index);
            slot.socket_len += datagram.bytes.len();
            slot.socket.push_back(datagram);
            self.request_turn(index, self.now);
        } else {
            self.trace.note(self.now, Step::Overflowed, &datagram);
            self.slot_mut(index).overflowed += 1;
        }
    }

    /// Runs a turn if a timer is due: it may have moved since it was armed.
    fn wake(&mut self, index: NodeIndex) {
        let now = self.now;
        let slot = self.slot_mut(index);
        slot.armed = None;
        if slot.deadline().is_some_and(|deadline| deadline <= now) {
            self.request_turn(index, now);
        } else {
            self.rearm(index);
        }
    }

    fn turn(&mut self, index: NodeIndex) {
        let (now, unix) = (self.now, self.unix_now());
        let slot = self.slot_mut(index);
        if slot.turn_at != Some(now) {
            return;
        }
        slot.turn_at = None;
        if slot.stalled_until > now {
            self.request_turn(index, now);
            return;
        }
        let Some(mut node) = slot.node.take() else {
            return;
        };
        let local = slot.local(now);
        if let Some(unix) = slot.config.wall_clock.read(unix) {
            node.set_unix_time(local, unix);
        }
        slot.receive(local, node.as_mut());
        if node.poll_timeout().is_some_and(|at| at <= local) {
            node.handle_timeout(local);
        }
        let mut effects = Vec::new();
        node.drain(
            local,
            &mut Outbox {
                addresses: &slot.addresses,
                effects: &mut effects,
            },
        );
        slot.node = Some(node);
        slot.count_turn(now);
        let more = !slot.socket.is_empty();
        for effect in effects {
            self.carry_out(index, effect);
        }
        if more {
            self.request_turn(index, now);
        }
        self.rearm(index);
    }

    fn carry_out(&mut self, index: NodeIndex, effect: Effect) {
        match effect {
            Effect::Send(datagram) => self.send(index, datagram),
            Effect::Bind(address) => self.bind_address(index, address),
            Effect::Unbind(address) => {
                if self.network.holder(address) == Some(index) {
                    self.unbind_address(address);
                }
            }
        }
    }

    fn send(&mut self, from: NodeIndex, mut datagram: Datagram) {
        let now = self.now;
        self.trace.note(now, Step::Sent, &datagram);
        let Some(to) = self.network.holder(datagram.destination) else {
            self.trace.note(now, Step::Unroutable, &datagram);
            return;
        };
        let pair = (from, to);
        self.network.watch(now, pair, &datagram);
        let extra = match self.network.judge(now, pair, &mut datagram) {
            Verdict::Pass => Duration::ZERO,
            Verdict::Delay(span) => span,
            Verdict::Drop => {
                self.trace.note(now, Step::Intercepted, &datagram);
                return;
            }
        };
        let mut deliveries = self.network.send(now, pair, datagram.bytes.len());
        let mut note = |step| self.trace.note(now, step, &datagram);
        match deliveries.fate() {
            Outcome::Delivered => {}
            Outcome::Lost => note(Step::Lost),
            Outcome::QueueFull => note(Step::QueueFull),
            Outcome::TooLong => note(Step::TooLong),
            Outcome::Partitioned => note(Step::Partitioned),
        }
        while let Some(delivery) = deliveries.next() {
            let mut copy = Datagram {
                bytes: if deliveries.len() == 0 {
                    core::mem::take(&mut datagram.bytes)
                } else {
                    datagram.bytes.clone()
                },
                ..datagram
            };
            let len = delivery.edit(&mut copy.bytes).len();
            copy.bytes.truncate(len);
            self.schedule
                .insert(delivery.at + extra, Event::Arrival(copy));
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Schedule {
    heap: BinaryHeap<Reverse<Entry>>,
    count: u64,
}

impl Schedule {
    pub(super) fn insert(&mut self, at: Instant, event: Event) {
        let order = self.count;
        self.count += 1;
        self.heap.push(Reverse(Entry { at, order, event }));
    }

    pub(super) fn next_at(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }

    pub(super) fn pop(&mut self) -> Option<(Instant, Event)> {
        let Reverse(entry) = self.heap.pop()?;
        Some((entry.at, entry.event))
    }
}

#[derive(Debug)]
pub(super) enum Event {
    /// A datagram arrives at the node that then has its destination address.
    Arrival(Datagram),
    /// A node's driver runs once.
    Turn(NodeIndex),
    /// A node's earliest timer may be due.
    Wake(NodeIndex),
}

#[derive(Debug)]
struct Entry {
    at: Instant,
    order: u64,
    event: Event,
}

impl Entry {
    const fn key(&self) -> (Instant, u64) {
        (self.at, self.order)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}
