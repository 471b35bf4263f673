//! A small datagram machine, correct or broken in one way.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use wire::{
    Arrival, CommandId, Effect, Generator, Instant, Machine, Reader, Seed, Transmit, UnixTime,
    Writer,
};

/// Pings peers, answers pings, and looks up names.
pub(crate) struct Pinger {
    fault: Fault,
    now: Instant,
    unix: Option<UnixTime>,
    generator: Generator,
    /// Destination of the heartbeat: the last peer that was pinged.
    friend: Option<SocketAddr>,
    heartbeat_at: Option<Instant>,
    outbox: VecDeque<(SocketAddr, Vec<u8>)>,
    events: VecDeque<Event>,
    pending: VecDeque<Ping>,
    commands: VecDeque<(CommandId, Lookup)>,
    /// Pending look-ups.
    open: VecDeque<CommandId>,
    next_command: u64,
    /// Used only with [`Fault::Hoards`].
    hoard: Vec<Vec<u8>>,
    /// Pings sent while a look-up was pending.
    pings_while_open: u64,
    pub(crate) stats: Stats,
}

/// The defect of a pinger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Accepts a `now` that is earlier than the last.
    GoesBack,
    /// Returns the same event again and again.
    EndlessDrain,
    /// Sends heartbeats when polled, without a timer.
    Restless,
    /// Sends a heartbeat on every timeout call.
    EarlyTimer,
    /// Does not advance the deadline.
    BusyLoop,
    /// Uses randomness that does not depend on the seed.
    OwnRandomness,
    /// Reads past the end of a short ping.
    Panics,
    /// Keeps datagrams that it cannot parse.
    Hoards,
    /// Accepts completions of commands that it never issued.
    BelievesStrangers,
    /// Accepts a second completion.
    BelievesTwice,
    /// Does not ping while a look-up is pending.
    WaitsForAll,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Answered(SocketAddr, u64),
    Unanswered(SocketAddr, u64),
    Found(u64),
}

#[derive(Debug)]
pub(crate) struct Lookup;

impl Effect for Lookup {
    type Outcome = u64;
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stats {
    pub(crate) dropped: u64,
    pub(crate) stray_completions: u64,
}

struct Ping {
    peer: SocketAddr,
    nonce: u64,
    deadline: Instant,
}

impl Pinger {
    pub(crate) fn new(seed: Seed, now: Instant) -> Self {
        Self {
            fault: Fault::None,
            now,
            unix: None,
            generator: seed.generator(1),
            friend: None,
            heartbeat_at: None,
            outbox: VecDeque::new(),
            events: VecDeque::new(),
            pending: VecDeque::new(),
            commands: VecDeque::new(),
            open: VecDeque::new(),
            next_command: 0,
            hoard: Vec::new(),
            pings_while_open: 0,
            stats: Stats::default(),
        }
    }

    pub(crate) const fn with_fault(mut self, fault: Fault) -> Self {
        self.fault = fault;
        self
    }

    /// Pings `peer`. Returns false if too many answers are pending.
    pub(crate) fn ping(&mut self, now: Instant, peer: SocketAddr) -> bool {
        let now = self.tell(now);
        let waits = self.fault == Fault::WaitsForAll && !self.open.is_empty();
        if self.pending.len() >= PENDING_MAX || waits {
            return false;
        }
        let mut nonce = self.generator.next_u64();
        if self.fault == Fault::OwnRandomness {
            nonce ^= OWN.fetch_add(1, Ordering::Relaxed);
        }
        self.pending.push_back(Ping {
            peer,
            nonce,
            deadline: now + PATIENCE,
        });
        if !self.open.is_empty() {
            self.pings_while_open += 1;
        }
        self.friend = Some(peer);
        self.heartbeat_at.get_or_insert(now + HEARTBEAT);
        self.push(peer, PING, nonce);
        true
    }

    /// Starts a look-up. Returns false if too many are pending.
    pub(crate) fn look_up(&mut self, now: Instant) -> bool {
        self.tell(now);
        if self.open.len() >= PENDING_MAX {
            return false;
        }
        let id = CommandId(self.next_command);
        self.next_command += 1;
        self.open.push_back(id);
        self.commands.push_back((id, Lookup));
        true
    }

    pub(crate) const fn has_pinged_while_waiting(&self) -> bool {
        self.pings_while_open > 0
    }

    pub(crate) fn pending_len(&self) -> usize {
        self.pending.len()
    }

    pub(crate) const fn unix(&self) -> Option<UnixTime> {
        self.unix
    }

    pub(crate) fn memory(&self) -> usize {
        let outbox: usize = self.outbox.iter().map(|(_, bytes)| bytes.len()).sum();
        let hoard: usize = self.hoard.iter().map(Vec::len).sum();
        outbox + hoard + 64 * (self.pending.len() + self.events.len() + self.open.len())
    }

    fn tell(&mut self, now: Instant) -> Instant {
        // A real machine has a debug assertion here. The tests of point 1 also run in debug builds.
        self.now = if self.fault == Fault::GoesBack {
            now
        } else {
            self.now.max(now)
        };
        self.now
    }

    fn push(&mut self, peer: SocketAddr, kind: u8, nonce: u64) {
        if self.outbox.len() >= OUTBOX_MAX {
            self.stats.dropped += 1;
            return;
        }
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        writer.u8(kind);
        writer.u64(nonce);
        self.outbox.push_back((peer, bytes));
    }

    fn emit(&mut self, event: Event) {
        if self.events.len() < EVENTS_MAX {
            self.events.push_back(event);
        }
    }

    fn beat(&mut self, now: Instant) {
        if let Some(friend) = self.friend {
            self.push(friend, HEART, now.as_nanos());
            if self.fault != Fault::BusyLoop {
                self.heartbeat_at = Some(now + HEARTBEAT);
            }
        }
    }

    fn expire(&mut self, now: Instant) {
        while let Some(ping) = self.pending.pop_front_if(|ping| ping.deadline <= now) {
            self.emit(Event::Unanswered(ping.peer, ping.nonce));
        }
    }
}

impl Machine for Pinger {
    type Peer = SocketAddr;
    type Event = Event;
    type Command = Lookup;

    fn handle_datagram(&mut self, now: Instant, arrival: Arrival<SocketAddr>, datagram: &mut [u8]) {
        self.tell(now);
        if self.fault == Fault::Panics && datagram.first() == Some(&PING) {
            assert!(datagram.len() >= 9, "read past the end");
        }
        let mut reader = Reader::new(datagram);
        match (reader.u8(), reader.u64()) {
            (Ok(PING), Ok(nonce)) => self.push(arrival.peer, PONG, nonce),
            (Ok(PONG), Ok(nonce)) => {
                let asked = |ping: &Ping| ping.nonce == nonce && ping.peer == arrival.peer;
                if let Some(at) = self.pending.iter().position(asked) {
                    self.pending.remove(at);
                    self.emit(Event::Answered(arrival.peer, nonce));
                }
            }
            _ if self.fault == Fault::Hoards => self.hoard.push(datagram.to_vec()),
            _ => self.stats.dropped += 1,
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        let now = self.tell(now);
        self.expire(now);
        let due = self.heartbeat_at.is_some_and(|at| at <= now);
        if due || self.fault == Fault::EarlyTimer {
            self.beat(now);
        }
    }

    fn handle_completed(&mut self, now: Instant, id: CommandId, outcome: u64) {
        self.tell(now);
        if let Some(at) = self.open.iter().position(|open| *open == id) {
            self.open.remove(at);
            self.emit(Event::Found(outcome));
            return;
        }
        self.stats.stray_completions += 1;
        let given = id.0 < self.next_command;
        let believed = if given {
            Fault::BelievesTwice
        } else {
            Fault::BelievesStrangers
        };
        if self.fault == believed {
            self.emit(Event::Found(outcome));
        }
    }

    fn set_unix_time(&mut self, now: Instant, unix: UnixTime) {
        self.tell(now);
        self.unix = Some(unix);
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit<SocketAddr>> {
        let before = self.now;
        let now = self.tell(now);
        if self.fault == Fault::Restless && now.saturating_since(before) > HEARTBEAT / 64 {
            self.beat(now);
        }
        let (peer, bytes) = self.outbox.pop_front()?;
        buf.extend_from_slice(&bytes);
        // The send time, so that a clock that goes back is detected.
        buf.extend_from_slice(&now.as_nanos().to_be_bytes());
        Some(Transmit::to(peer))
    }

    fn poll_command(&mut self) -> Option<(CommandId, Lookup)> {
        self.commands.pop_front()
    }

    fn poll_event(&mut self) -> Option<Event> {
        if self.fault == Fault::EndlessDrain {
            return self.events.front().cloned();
        }
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let pending = self.pending.front().map(|ping| ping.deadline);
        self.heartbeat_at.into_iter().chain(pending).min()
    }
}

/// Changes whenever a pinger with [`Fault::OwnRandomness`] draws.
static OWN: AtomicU64 = AtomicU64::new(1);

pub(crate) const PING: u8 = 1;
pub(crate) const PONG: u8 = 2;
pub(crate) const HEART: u8 = 3;
pub(crate) const PENDING_MAX: usize = 16;
pub(crate) const OUTBOX_MAX: usize = 64;
pub(crate) const EVENTS_MAX: usize = 64;
/// Timeout of an answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(5);
