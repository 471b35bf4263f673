//! The endpoint as a machine: what a driver calls.

use core::convert::Infallible;
use core::net::SocketAddr;

use crypto::Provider;
use crypto::token::TokenHeader;
use wire::{Arrival, CommandId, Instant, Machine, Transmit, UnixTime};

use super::{Endpoint, Reply, ReplyBody, Slot};
use crate::config::Mtu;
use crate::event::Event;
use crate::handshake::hello::{self, Hello};
use crate::handshake::reply::Versions;
use crate::packet::{Header, Kind};
use crate::session::Keying;

impl<P: Provider> Endpoint<P> {
    /// Takes one datagram, decrypting it in place. Bad ones are counted and dropped.
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
            // What waits leaves with the drain.
            *until = until.filter(|until| *until > now);
        }
        self.set_timers_of_touched();
        while let Some(index) = self.timers.pop_due(now) {
            let Some(id) = self.slots.id_at(index) else {
                continue;
            };
            match self.slots.get_mut(id) {
                Some(Slot::Dial(dial)) => {
                    let old = dial.hello_id();
                    let end = dial.handle_timeout(now, &mut self.provider, &mut self.generator);
                    let new = dial.hello_id();
                    if let Some(failure) = end {
                        self.remove(now, id);
                        self.events.push_back(Event::ConnectFailed {
                            session: id,
                            failure,
                        });
                        continue;
                    }
                    if new != old {
                        self.dials.remove(&old);
                        self.dials.insert(new, id);
                    }
                    self.arm(id);
                }
                Some(Slot::HalfOpen(_)) => self.remove(now, id),
                Some(Slot::Session(session)) => {
                    session.handle_timeout(now);
                    self.settle(now, id);
                }
                None => {}
            }
        }
    }

    /// Takes the wall clock, which only the expiry of tokens looks at.
    pub fn set_unix_time(&mut self, now: Instant, unix: UnixTime) {
        let now = self.advance(now);
        self.unix = Some((now, unix));
        self.tokens.expire(unix);
    }

    /// Appends the next datagram to `buf`; `None` when there is none.
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

    /// Returns the next event for the application.
    ///
    /// After [`Event::Closed`], what the session said last can be received until the next call.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.forget_told_end();
        let event = self.events.pop_front()?;
        if let Event::Closed { session, .. } = &event {
            self.told_end = Some(*session);
        }
        Some(event)
    }

    /// Returns when `handle_timeout` is next needed; `None` means never, until new input.
    ///
    /// It is right when [`poll_transmit`](Self::poll_transmit) has returned `None`; before, the
    /// deadlines of what came since the last drain may be missing.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let first = self.timers.next();
        let Some((_, Some(until))) = self.cap else {
            return first;
        };
        Some(first.map_or(until, |first| first.min(until)))
    }

    /// Returns whether sessions may send at all; where they may not, notes when they may.
    fn is_within_cap(&mut self, now: Instant) -> bool {
        let Some((cap, until)) = &mut self.cap else {
            return true;
        };
        let longest = u32::from(Mtu::MAX.get());
        // Brings it up to now, so that what it says lies ahead.
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

    /// Notes that a slot has nothing to send.
    fn rest(&mut self, index: u16) {
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
                    // The attempt was confirmed or ended since: nothing is owed.
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
                self.rest(index);
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
                    (transmit, transmit.is_some() && session.rests(now))
                }
                Some(Slot::HalfOpen(_)) | None => (None, false),
            };
            if transmit.is_some() && !is_done {
                // To the end of the queue: sessions take turns, a datagram each.
                self.ready.push_back(index);
            } else {
                self.rest(index);
                self.set_timer(id);
                self.pass_on_news(now, id);
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
}

/// The endpoint sends, and asks for nothing else.
impl<P: Provider> Machine for Endpoint<P> {
    type Peer = SocketAddr;
    type Event = Event;
    type Command = Infallible;

    fn handle_datagram(&mut self, now: Instant, arrival: Arrival<SocketAddr>, datagram: &mut [u8]) {
        self.handle_datagram(now, arrival, datagram);
    }

    /// A HELLO may; what is too short or long for one is dropped sooner than it could wait.
    fn may_wait(&self, datagram: &[u8]) -> bool {
        matches!(datagram, [hello::FIRST_BYTE, ..]) && datagram.len() == hello::LEN
    }

    /// A packet of a session that is not here, and a HELLO whose token is sealed by a key that is not.
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
            Some(
                Kind::Retry
                | Kind::Accept
                | Kind::Refuse
                | Kind::Version
                | Kind::Envelope
                | Kind::NotOurs,
            )
            | None => false,
        }
    }

    /// All who have a session, and not whose handshake is under way.
    fn tell_peers(&self, tell: &mut dyn FnMut(SocketAddr)) {
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
