//! Many sessions on one socket: routing, admission, timers and turns.

mod acceptance;
mod admission;
mod application;
mod arrival;
mod first_packet;
mod leave;
pub(crate) mod listener;
mod machine;
mod presence;
mod reset;
mod settling;
mod sources;
pub(crate) mod stall;
mod times;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use core::net::{IpAddr, SocketAddr};

use crypto::{NoEntropy, Provider, TokenId};
use wire::{ClientId, Generator, Instant, NodeId, Seed, UnixTime};

use crate::block_list::BlockList;
use crate::budget::TokenBucket;
use crate::config::{AppId, Config};
use crate::event::Event;
use crate::handshake::dial::Dial;
use crate::handshake::half_open::HalfOpen;
use crate::handshake::reply::{Refuse, Retry};
use crate::handshake::token_cache::TokenCache;
use crate::packet::Cid;
use crate::session::{Session, cap};
use crate::slots::{SessionId, Slots};
use crate::stats::EndpointStats;
use crate::timers::Timers;
use admission::Admitted;
use leave::Barred;
use listener::Listener;
use sources::Sources;

/// One socket's worth of sessions; a [`wire::Machine`] that speaks to socket addresses.
///
/// It dials with [`connect`](Self::connect) and accepts after [`listen`](Self::listen), both on
/// one socket if need be. It owns no socket, clock or thread: a driver of `servicer` brings
/// datagrams and time, and takes what [`poll_transmit`](Self::poll_transmit) writes.
pub struct Endpoint<P: Provider> {
    config: Config,
    app_id: AppId,
    /// First 16 bytes of the hash over the channel table: both ends must have the same.
    channel_digest: [u8; 16],
    provider: P,
    /// For what peers may see: connection ids, jitter, hello ids. Seeded by the provider once, so
    /// that it tells nothing about secrets.
    generator: Generator,
    listener: Option<Box<Listener<P>>>,
    /// Tokens that were used; outlives the listener, since what it forgot could be used again.
    tokens: TokenCache,
    slots: Slots<Slot<P>>,
    /// Dials, by the id that replies echo.
    dials: BTreeMap<u64, SessionId>,
    /// Sessions by peer address, where our connection ids have length 0.
    by_address: BTreeMap<SocketAddr, SessionId>,
    /// Sessions whose server may reset them, by its address.
    resettable: BTreeSet<(SocketAddr, SessionId)>,
    /// Which session each player has.
    players: BTreeMap<ClientId, Present>,
    /// Which session each node of the mesh has.
    nodes: BTreeMap<NodeId, SessionId>,
    /// Nodes that peer mode lets in; `None` lets in all that hold the network secret.
    allowed_nodes: Option<BTreeSet<NodeId>>,
    sources: Sources,
    blocked: BlockList,
    /// Players who have broken the protocol.
    barred: Barred,
    timers: Timers,
    /// Slots that may have something to send, each once.
    ready: VecDeque<u16>,
    /// Whether each slot is in `ready`.
    marks: Vec<Marks>,
    /// Slots touched since timers last ran.
    touched: Vec<u16>,
    /// Replies that keep no state; at most one for each datagram handled since the last drain.
    replies: VecDeque<Reply>,
    events: VecDeque<Event>,
    /// Sessions whose end waits in `events` or was the last event told, and whether nothing else keeps
    /// their slots: what they said last can be read until then.
    ended: BTreeMap<SessionId, bool>,
    /// The session whose end was the last event told.
    told_end: Option<SessionId>,
    stats: EndpointStats,
    /// What all sessions together may send, and when they may go on that wait for it.
    cap: Option<(TokenBucket, Option<Instant>)>,
    /// The latest time heard of.
    now: Instant,
    /// The wall clock at a monotonic instant.
    unix: Option<(Instant, UnixTime)>,
}

/// What a slot holds.
pub(crate) enum Slot<P: Provider> {
    /// We dial.
    Dial(Box<Dial<P>>),
    /// A HELLO was accepted; its sender has not spoken since.
    HalfOpen(Box<HalfOpen<Admitted>>),
    /// A session, open or on its way out.
    Session(Box<Session<P::Aead>>),
}

/// A player's session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Present {
    pub(crate) session: SessionId,
    pub(crate) issued_at: UnixTime,
    pub(crate) token_id: TokenId,
}

/// A datagram that answers another, without a session.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) destination: SocketAddr,
    /// The address of ours that was spoken to.
    pub(crate) source: Option<IpAddr>,
    pub(crate) body: ReplyBody,
}

#[derive(Debug)]
pub(crate) enum ReplyBody {
    Retry(Retry),
    Refuse(Refuse),
    /// The versions we speak, for the HELLO with this id.
    Version(u64),
    /// The ACCEPT of a half-open attempt.
    Accept(SessionId),
    /// The session of this connection id is not known.
    Reset(Cid),
}

/// Which of the endpoint's lists a slot is in.
#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    is_ready: bool,
    is_touched: bool,
}

impl<P: Provider> Endpoint<P> {
    /// Makes an endpoint without sessions that listens to nobody.
    ///
    /// # Errors
    ///
    /// [`NoEntropy`] where the provider has no randomness.
    pub fn new(
        config: Config,
        app_id: AppId,
        mut provider: P,
        now: Instant,
    ) -> Result<Self, NoEntropy> {
        let mut seed = [0; 32];
        provider.random(&mut seed)?;
        let generator = Seed(seed).generator(0);
        let mut table = Vec::new();
        config.channels.encode(&mut table);
        config.messages.encode(&mut table);
        let digest = provider.sha256(&[&table]);
        let cap = config
            .endpoint_send_rate_max
            .map(|rate| (cap(rate.get(), now), None));
        Ok(Self {
            // Beyond `sessions_max` for players who take their own places.
            slots: Slots::new(config.sessions_max.saturating_add(config.half_open_max)),
            config,
            app_id,
            channel_digest: digest.first_chunk().copied().unwrap_or_default(),
            provider,
            generator,
            listener: None,
            tokens: TokenCache::default(),
            dials: BTreeMap::new(),
            by_address: BTreeMap::new(),
            resettable: BTreeSet::new(),
            players: BTreeMap::new(),
            nodes: BTreeMap::new(),
            allowed_nodes: None,
            sources: Sources::default(),
            blocked: BlockList::default(),
            barred: Barred::default(),
            timers: Timers::default(),
            ready: VecDeque::new(),
            marks: Vec::new(),
            touched: Vec::new(),
            replies: VecDeque::new(),
            events: VecDeque::new(),
            ended: BTreeMap::new(),
            told_end: None,
            stats: EndpointStats::default(),
            cap,
            now,
            unix: None,
        })
    }

    /// Returns what was counted so far.
    pub const fn stats(&self) -> &EndpointStats {
        &self.stats
    }

    /// Returns the provider, so that layers above draw from the same.
    pub const fn provider(&self) -> &P {
        &self.provider
    }

    /// Returns the provider, to draw randomness from it.
    pub const fn provider_mut(&mut self) -> &mut P {
        &mut self.provider
    }

    /// Returns how many sessions, half-open ones and dials included, there are.
    pub const fn session_count(&self) -> u16 {
        self.slots.len()
    }

    /// Returns about how many bytes of memory it holds for its peers: sessions with their queues and
    /// records of packets, attempts, dials, tokens that were used, and what waits to be polled.
    pub fn memory(&self) -> usize {
        let events = self.events.len().saturating_mul(size_of::<Event>());
        let replies = self.replies.len().saturating_mul(size_of::<Reply>());
        let sessions: usize = self
            .slots
            .values()
            .map(|slot| match slot {
                Slot::Dial(_) => size_of::<Dial<P>>().saturating_add(1_200),
                Slot::HalfOpen(half_open) => {
                    size_of::<HalfOpen<Admitted>>().saturating_add(half_open.accept.len())
                }
                Slot::Session(session) => session.memory(),
            })
            .sum();
        sessions
            .saturating_add(self.tokens.memory())
            .saturating_add(events)
            .saturating_add(replies)
    }

    /// Returns whether there is no room for another session but in the place of one.
    const fn is_full(&self) -> bool {
        self.slots.len() >= self.config.sessions_max
    }

    /// Keeps time from going back: a late clock is a fault of the driver's.
    pub(crate) fn advance(&mut self, now: Instant) -> Instant {
        debug_assert!(now >= self.now, "time went back");
        if now > self.now {
            self.watch_for_stalls(now);
            self.now = now;
        }
        self.now
    }

    /// The wall clock now, from the last one told.
    pub(crate) fn unix_time(&self) -> Option<UnixTime> {
        self.unix
            .map(|(at, unix)| unix + self.now.saturating_since(at))
    }

    /// Marks a slot as one that may have something to send. The drain that must follow sets its
    /// deadline, once, however much has come in between.
    pub(crate) fn arm(&mut self, id: SessionId) {
        let index = usize::from(id.index);
        if self.marks.len() <= index {
            self.marks.resize(index + 1, Marks::default());
        }
        let Some(marks) = self.marks.get_mut(index) else {
            return;
        };
        if !core::mem::replace(&mut marks.is_ready, true) {
            self.ready.push_back(id.index);
        }
        if !core::mem::replace(&mut marks.is_touched, true) {
            self.touched.push(id.index);
        }
    }

    /// Sets the deadlines of slots that were touched since the last call and still wait for a drain.
    pub(crate) fn set_timers_of_touched(&mut self) {
        while let Some(index) = self.touched.pop() {
            let Some(marks) = self.marks.get_mut(usize::from(index)) else {
                continue;
            };
            marks.is_touched = false;
            // A drain has set the others'.
            if marks.is_ready
                && let Some(id) = self.slots.id_at(index)
            {
                self.set_timer(id);
            }
        }
    }

    pub(crate) fn set_timer(&mut self, id: SessionId) {
        let deadline = match self.slots.get(id) {
            Some(Slot::Dial(dial)) => Some(dial.poll_timeout()),
            Some(Slot::HalfOpen(half_open)) => Some(half_open.expires_at),
            Some(Slot::Session(session)) => session.poll_timeout(),
            None => None,
        };
        self.timers.set(id.index, deadline);
    }
}

impl<P: Provider> core::fmt::Debug for Endpoint<P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Endpoint")
            .field("app_id", &self.app_id)
            .field("sessions", &self.slots.len())
            .field("is_listening", &self.listener.is_some())
            .finish_non_exhaustive()
    }
}
