//! Many sessions on one socket: routing, admission, timers and scheduling.

mod admission;
mod application;
mod arrival;
pub(crate) mod listener;

use core::convert::Infallible;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crypto::token::TokenHeader;
use crypto::{NoEntropy, Provider, TokenId};
use wire::{
    Arrival, ClientId, CommandId, Generator, Instant, Machine, NodeId, SourceKey, SourceLimiter,
    TokenBucket, Transmit, UnixTime,
};

use crate::block_list::BlockList;
use crate::config::{AppId, Config, Mtu};
use crate::event::Event;
use crate::handshake::dial::Dial;
use crate::handshake::half_open::HalfOpen;
use crate::handshake::half_open::TokenCache;
use crate::handshake::hello::{self, Hello};
use crate::handshake::reply::{Refuse, Retry, Versions};
use crate::packet::{Cid, Header, Kind};
use crate::session::{Keying, STALL_MAX, Session, cap};
use crate::slots::Timers;
use crate::slots::{SessionId, Slots};
use crate::stats::EndpointStats;
use admission::Admitted;
use application::Bans;
use listener::Listener;

/// The sessions of one socket; a [`wire::Machine`] with socket addresses as peers.
///
/// It dials with [`connect`](Self::connect) and accepts after [`listen`](Self::listen). It owns no
/// socket, clock or thread: a driver supplies datagrams and time.
pub struct Endpoint<P: Provider> {
    config: Config,
    app_id: AppId,
    /// First 16 bytes of the hash over the channel table; both ends must agree.
    channel_digest: [u8; 16],
    provider: P,
    /// For values that peers see. Seeded once by the provider, so that it reveals nothing about
    /// secrets.
    generator: Generator,
    listener: Option<Box<Listener<P>>>,
    /// Used tokens. Outlives the listener, since a forgotten token could be used again.
    tokens: TokenCache,
    slots: Slots<Slot<P>>,
    /// Dials by the hello id that replies echo.
    dials: BTreeMap<u64, SessionId>,
    /// Sessions by peer address, if our connection ids have length 0.
    by_address: BTreeMap<SocketAddr, SessionId>,
    resettable: BTreeSet<(SocketAddr, SessionId)>,
    players: BTreeMap<ClientId, Present>,
    nodes: BTreeMap<NodeId, SessionId>,
    /// Nodes allowed in peer mode; `None` allows all that hold the network secret.
    allowed_nodes: Option<BTreeSet<NodeId>>,
    /// Sessions by IPv4 address or IPv6 /64.
    sources: SourceLimiter<SourceKey>,
    blocked: BlockList,
    bans: Bans,
    timers: Timers,
    /// Slots that may have something to send, without duplicates.
    ready: VecDeque<u16>,
    marks: Vec<Marks>,
    touched: Vec<u16>,
    /// Stateless replies; at most one per datagram handled since the last drain.
    replies: VecDeque<Reply>,
    events: VecDeque<Event>,
    /// Ended sessions whose `Closed` is not polled yet or was the last event polled, so that their
    /// last messages stay readable; `true` if only that keeps the slot.
    ended: BTreeMap<SessionId, bool>,
    /// The session of the last polled event, if that was `Closed`.
    reported_end: Option<SessionId>,
    stats: EndpointStats,
    /// The rate limit of all sessions together, and when sessions that wait for it may continue.
    cap: Option<(TokenBucket, Option<Instant>)>,
    now: Instant,
    /// The wall clock at a monotonic instant.
    unix: Option<(Instant, UnixTime)>,
}

pub(crate) enum Slot<P: Provider> {
    /// Our attempt to connect.
    Dial(Box<Dial<P>>),
    /// An accepted HELLO without a first packet.
    HalfOpen(Box<HalfOpen<Admitted>>),
    Session(Box<Session<P::Aead>>),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Present {
    pub(crate) session: SessionId,
    pub(crate) issued_at: UnixTime,
    pub(crate) token_id: TokenId,
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) destination: SocketAddr,
    pub(crate) source: Option<IpAddr>,
    pub(crate) body: ReplyBody,
}

#[derive(Debug)]
pub(crate) enum ReplyBody {
    Retry(Retry),
    Refuse(Refuse),
    /// Our versions, for the HELLO with this id.
    Version(u64),
    Accept(SessionId),
    Reset(Cid),
}

#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    is_ready: bool,
    is_touched: bool,
}

impl<P: Provider> Endpoint<P> {
    /// Creates an endpoint that has no sessions and does not listen.
    ///
    /// # Errors
    ///
    /// [`NoEntropy`] if the provider has no randomness.
    pub fn new(
        config: Config,
        app_id: AppId,
        mut provider: P,
        now: Instant,
    ) -> Result<Self, NoEntropy> {
        let generator = provider.random_seed()?.generator(0);
        let mut table = Vec::new();
        config.channels.encode(&mut table);
        config.messages.encode(&mut table);
        let digest = provider.sha256(&[&table]);
        let cap = config
            .endpoint_send_rate_max
            .map(|rate| (cap(rate.get(), now), None));
        Ok(Self {
            // Slots beyond `sessions_max` serve players who replace their own sessions.
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
            // `refusal` applies the limit.
            sources: SourceLimiter::new(u32::MAX, u32::MAX),
            blocked: BlockList::default(),
            bans: Bans::default(),
            timers: Timers::default(),
            ready: VecDeque::new(),
            marks: Vec::new(),
            touched: Vec::new(),
            replies: VecDeque::new(),
            events: VecDeque::new(),
            ended: BTreeMap::new(),
            reported_end: None,
            stats: EndpointStats::default(),
            cap,
            now,
            unix: None,
        })
    }

    /// Returns the counters.
    pub const fn stats(&self) -> &EndpointStats {
        &self.stats
    }

    /// Returns the provider, for the layers above.
    pub const fn provider(&self) -> &P {
        &self.provider
    }

    /// Returns the provider, to draw randomness from it.
    pub const fn provider_mut(&mut self) -> &mut P {
        &mut self.provider
    }

    /// Returns the number of sessions, including half-open ones and dials.
    pub const fn session_count(&self) -> u16 {
        self.slots.len()
    }

    /// Returns the approximate memory in bytes: sessions with queues and records, attempts, dials,
    /// used tokens, and everything that waits to be polled.
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

    /// Returns whether a new session needs the slot of an existing one.
    const fn is_full(&self) -> bool {
        self.slots.len() >= self.config.sessions_max
    }

    /// Keeps time monotonic: a clock that steps back is a driver's fault.
    pub(crate) fn advance(&mut self, now: Instant) -> Instant {
        debug_assert!(now >= self.now, "time went back");
        if now > self.now {
            self.detect_stall(now);
            self.now = now;
        }
        self.now
    }

    pub(crate) fn unix_time(&self) -> Option<UnixTime> {
        self.unix
            .map(|(at, unix)| unix + self.now.saturating_since(at))
    }

    /// Schedules a slot that may have something to send. The next drain sets its deadline.
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

    /// Sets the deadlines of slots touched since the last call that no drain has set.
    pub(crate) fn set_timers_of_touched(&mut self) {
        while let Some(index) = self.touched.pop() {
            let Some(marks) = self.marks.get_mut(usize::from(index)) else {
                continue;
            };
            marks.is_touched = false;
            // A drain sets the deadlines of the others.
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

    /// Processes one datagram, decrypting it in place. Invalid ones are counted and dropped.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        arrival: Arrival<SocketAddr>,
        datagram: &mut [u8],
    ) {
        let now = self.advance(now);
        self.on_datagram(now, &arrival, datagram);
    }

    /// Runs every timer due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        let now = self.advance(now);
        if let Some((_, until)) = &mut self.cap {
            // Waiting packets are sent by the drain.
            *until = until.filter(|until| *until > now);
        }
        self.set_timers_of_touched();
        while let Some(index) = self.timers.pop_due(now) {
            let Some(id) = self.slots.id_at(index) else {
                continue;
            };
            match self.slots.get_mut(id) {
                Some(Slot::Dial(dial)) => {
                    let old = dial.attempt.hello_id;
                    let end = dial.handle_timeout(now, &mut self.provider, &mut self.generator);
                    let new = dial.attempt.hello_id;
                    if let Some(failure) = end {
                        self.fail_dial(now, id, failure);
                        continue;
                    }
                    self.dials.remove(&old);
                    self.dials.insert(new, id);
                    self.arm(id);
                }
                Some(Slot::HalfOpen(_)) => self.remove(now, id),
                Some(Slot::Session(session)) => {
                    session.handle_timeout(now);
                    self.after_session(now, id);
                }
                None => {}
            }
        }
    }

    /// Sets the wall clock, used only for the expiry of tokens.
    pub fn set_unix_time(&mut self, now: Instant, unix: UnixTime) {
        let now = self.advance(now);
        self.unix = Some((now, unix));
        self.tokens.expire(unix);
    }

    /// Appends the next datagram to `buf`; `None` if there is none.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit<SocketAddr>> {
        let now = self.advance(now);
        let start = buf.len();
        let transmit = self
            .poll_reply(buf)
            .or_else(|| self.poll_session(now, buf))?;
        self.stats.datagrams_sent = self.stats.datagrams_sent.saturating_add(1);
        self.stats.bytes_sent = self
            .stats
            .bytes_sent
            .saturating_add(u64::try_from(buf.len().saturating_sub(start)).unwrap_or(0));
        Some(transmit)
    }

    /// Returns the next event. After [`Event::Closed`], the session's last messages can be received
    /// until the next call.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.remove_reported_end();
        let event = self.events.pop_front()?;
        if let Event::Closed { session, .. } = &event {
            self.reported_end = Some(*session);
        }
        Some(event)
    }

    /// Returns when `handle_timeout` is next due; `None` means never, until new input.
    ///
    /// Valid once [`poll_transmit`](Self::poll_transmit) has returned `None`. Before that,
    /// deadlines set since the last drain may be missing.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let first = self.timers.next();
        let Some((_, Some(until))) = self.cap else {
            return first;
        };
        Some(first.map_or(until, |first| first.min(until)))
    }

    /// Returns whether the common rate limit allows sessions to send; otherwise sets when it will.
    fn is_within_cap(&mut self, now: Instant) -> bool {
        let Some((cap, until)) = &mut self.cap else {
            return true;
        };
        let longest = u32::from(Mtu::MAX.get());
        // Refills the bucket, so that its answer lies in the future.
        cap.take(now, 0);
        if cap.available(now) >= longest {
            *until = None;
            return true;
        }
        *until = (!self.ready.is_empty())
            .then(|| cap.available_at(longest))
            .flatten();
        false
    }

    fn clear_ready(&mut self, index: u16) {
        if let Some(marks) = self.marks.get_mut(usize::from(index)) {
            marks.is_ready = false;
        }
    }

    fn poll_reply(&mut self, buf: &mut Vec<u8>) -> Option<Transmit<SocketAddr>> {
        while let Some(Reply {
            destination,
            source,
            body,
        }) = self.replies.pop_front()
        {
            match body {
                ReplyBody::Retry(retry) => retry.encode(buf),
                ReplyBody::Refuse(refuse) => refuse.encode(buf),
                ReplyBody::Version(hello_id) => {
                    Versions::encode(hello_id, self.config.versions.as_slice(), buf);
                }
                ReplyBody::Reset(cid) => {
                    if !self.write_reset(cid, buf) {
                        continue;
                    }
                }
                ReplyBody::Accept(id) => match self.slots.get(id) {
                    Some(Slot::HalfOpen(half_open)) => buf.extend_from_slice(&half_open.accept),
                    // The attempt was confirmed or ended since.
                    _ => continue,
                },
            }
            return Some(Transmit {
                source,
                ..Transmit::to(destination)
            });
        }
        None
    }

    fn poll_session(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit<SocketAddr>> {
        if !self.is_within_cap(now) {
            return None;
        }
        let start = buf.len();
        while let Some(index) = self.ready.pop_front() {
            let Some(id) = self.slots.id_at(index) else {
                self.clear_ready(index);
                continue;
            };
            let (transmit, is_done) = match self.slots.get_mut(id) {
                Some(Slot::Dial(dial)) => (dial.poll_transmit(now, buf).map(Transmit::to), false),
                Some(Slot::Session(session)) => {
                    let keying = Keying {
                        provider: &self.provider,
                        limits: &self.config.key_limits,
                    };
                    let transmit = session.poll_transmit(now, &mut self.generator, buf, &keying);
                    (transmit, transmit.is_some() && session.compact_if_idle(now))
                }
                Some(Slot::HalfOpen(_)) | None => (None, false),
            };
            if transmit.is_some() && !is_done {
                // Round robin over sessions, one datagram each.
                self.ready.push_back(index);
            } else {
                self.clear_ready(index);
                self.set_timer(id);
                self.drain_session_events(now, id);
            }
            if transmit.is_some() {
                if let Some((cap, _)) = &mut self.cap {
                    let len = buf.len().saturating_sub(start);
                    cap.take_forced(now, u32::try_from(len).unwrap_or(u32::MAX));
                }
                return transmit;
            }
        }
        None
    }

    /// Moves idle deadlines if the driver is more than 250 ms late, by the excess. A driver sleeps
    /// until a deadline, so a stall is measured from the earliest missed deadline and not from the
    /// last call.
    fn detect_stall(&mut self, now: Instant) {
        let Some(due) = self.timers.next() else {
            return;
        };
        let late = now.saturating_since(due.max(self.now));
        let Some(over) = late.checked_sub(LATE).filter(|over| !over.is_zero()) else {
            return;
        };
        self.stats.stalls = self.stats.stalls.saturating_add(1);
        let over = over.min(STALL_MAX);
        let ids: Vec<SessionId> = self.slots.ids().collect();
        for id in ids {
            if let Some(Slot::Session(session)) = self.slots.get_mut(id) {
                session.on_stall(over);
            }
        }
    }
}

/// How late a driver may be; TWP/1, section 11.
const LATE: Duration = Duration::from_millis(250);

wire::debug_fields!([P: Provider] Endpoint<P>, this {
    app_id: this.app_id,
    sessions: this.slots.len(),
    is_listening: this.listener.is_some(),
});

/// The endpoint has no commands.
impl<P: Provider> Machine for Endpoint<P> {
    type Peer = SocketAddr;
    type Event = Event;
    type Command = Infallible;

    fn handle_datagram(&mut self, now: Instant, arrival: Arrival<SocketAddr>, datagram: &mut [u8]) {
        self.handle_datagram(now, arrival, datagram);
    }

    /// A HELLO may wait. A datagram too short or long for one is dropped at once anyway.
    fn may_wait(&self, datagram: &[u8]) -> bool {
        matches!(datagram, [hello::FIRST_BYTE, ..]) && datagram.len() == hello::LEN
    }

    /// Packets of unknown sessions, and HELLOs with an unknown token key.
    fn is_stray(&self, datagram: &[u8]) -> bool {
        match datagram.first().map(|first| Kind::of(*first)) {
            Some(Kind::Protected) => {
                let cid_len = self.config.cid_len.bytes();
                let header = Header::decode(datagram, cid_len);
                cid_len > 0
                    && header.is_ok_and(|header| self.slots.by_cid(header.destination).is_none())
            }
            Some(Kind::Hello) => self.listener.as_ref().is_some_and(|listener| {
                let token = Hello::decode(datagram).map(|hello| hello.token);
                let header = token.ok().and_then(|token| TokenHeader::decode(token).ok());
                let is_known = |id| listener.token_keys.iter().any(|key| key.id() == id);
                header.is_some_and(|header| !is_known(header.key_id))
            }),
            _ => false,
        }
    }

    /// Every peer with a session; handshakes in progress are excluded.
    fn for_each_peer(&self, tell: &mut dyn FnMut(SocketAddr)) {
        let addresses = self.slots.ids().filter_map(|id| self.peer_address(id));
        addresses.for_each(tell);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.handle_timeout(now);
    }

    fn handle_completed(&mut self, _now: Instant, _id: CommandId, outcome: Infallible) {
        match outcome {}
    }

    fn set_unix_time(&mut self, now: Instant, unix: UnixTime) {
        self.set_unix_time(now, unix);
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit<SocketAddr>> {
        self.poll_transmit(now, buf)
    }

    fn poll_command(&mut self) -> Option<(CommandId, Infallible)> {
        None
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.poll_event()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.poll_timeout()
    }
}
