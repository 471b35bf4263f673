//! Handling of a tunnel's streams.

use quinn_proto::{ConnectionError, Dir, Event, StreamEvent, StreamId};
use wire::{Instant, LimitError, SourceKey};

use super::conn::{CHUNK_MAX, Conn, Inbound, Outbound, TunnelConnState};
use super::event::{ConnEnd, TunnelEnd, TunnelEvent};
use super::open_record::{ACCEPTED, OpenReader, OpenRecord, RESET, Refusal};
use super::quic::{Read, Written};
use super::{DIAL_MAX, RECORD_MAX, Side, Tunnel, TunnelState};

impl Tunnel {
    /// Handles all pending QUIC events.
    pub(super) fn pump(&mut self, now: Instant) {
        while let Some(event) = self.quic.poll() {
            match event {
                Event::Connected => {
                    self.state = TunnelState::Established;
                    self.events.push_back(TunnelEvent::Up);
                    self.open_waiting();
                }
                Event::ConnectionLost { reason } => self.go_down(end_of(&reason)),
                Event::Stream(event) => self.on_stream(now, &event),
                Event::HandshakeDataReady | Event::DatagramReceived | Event::DatagramsUnblocked => {
                }
            }
        }
        self.take_streams(now);
        self.due = self.quic.due(now);
        self.plan_stall_check(now);
    }

    fn on_stream(&mut self, now: Instant, event: &StreamEvent) {
        match *event {
            StreamEvent::Readable { id } => {
                if let Some(number) = self.by_stream.get(&id).copied() {
                    self.on_readable(now, number);
                }
            }
            StreamEvent::Writable { id } => {
                if let Some(number) = self.by_stream.get(&id).copied() {
                    self.on_writable(number);
                }
            }
            StreamEvent::Finished { id } => {
                if let Some(number) = self.by_stream.get(&id).copied() {
                    self.on_delivered(number);
                }
            }
            StreamEvent::Stopped { id, error_code } => {
                if let Some(number) = self.by_stream.get(&id).copied() {
                    self.on_broken(number, error_code.into_inner());
                }
            }
            StreamEvent::Available { dir: Dir::Bi } => self.open_waiting(),
            // `pump` accepts opened streams if there is room.
            StreamEvent::Opened { .. } | StreamEvent::Available { dir: Dir::Uni } => {}
        }
    }

    /// Assigns streams to waiting connections.
    pub(super) fn open_waiting(&mut self) {
        while let Some(&number) = self.waiting.front() {
            if self.conns.contains_key(&number) {
                let Some(stream) = self.quic.open() else {
                    return;
                };
                if let Some(conn) = self.conns.get_mut(&number) {
                    conn.stream = Some(stream);
                }
                self.by_stream.insert(stream, number);
                self.on_writable(number);
            }
            self.waiting.pop_front();
        }
    }

    /// Accepts streams of the entry up to the limit of players; others wait.
    fn take_streams(&mut self, now: Instant) {
        let takes_any = self.side == Side::Exit && self.state == TunnelState::Established;
        while takes_any && self.has_room() {
            let Some(stream) = self.quic.accept() else {
                return;
            };
            let stage = TunnelConnState::Reading(OpenReader::default());
            let mut conn = Conn::new(stage, now + RECORD_MAX);
            conn.stream = Some(stream);
            let number = self.add(conn);
            self.by_stream.insert(stream, number);
            self.stats.opened = self.stats.opened.saturating_add(1);
            self.on_readable(now, number);
        }
    }

    fn on_readable(&mut self, now: Instant, number: u64) {
        let Some((conn, stream)) = self.with_stream(number) else {
            return;
        };
        match conn.stage {
            TunnelConnState::Reading(_) => self.read_open(now, (number, stream)),
            TunnelConnState::Asking => self.read_answer(number, stream),
            TunnelConnState::Dialling | TunnelConnState::Open => {}
        }
        let Some((_, stream)) = self.with_stream(number) else {
            return;
        };
        if let Some(code) = self.quic.reset_code(stream) {
            self.on_broken(number, code);
            return;
        }
        self.notify_readable(number);
    }

    fn read_open(&mut self, now: Instant, (number, stream): (u64, StreamId)) {
        loop {
            let Some(conn) = self.conns.get_mut(&number) else {
                return;
            };
            let TunnelConnState::Reading(reader) = &mut conn.stage else {
                return;
            };
            let taken = match self.quic.read(stream, reader.wants()) {
                Read::Bytes(bytes) => reader.take(&bytes).ok(),
                Read::Nothing => return,
                Read::Reset(code) => return self.on_broken(number, code),
                Read::Finished => None,
            };
            match taken {
                Some(None) => {}
                Some(Some(open)) => return self.on_open(now, number, open),
                None => {
                    self.stats.malformed = self.stats.malformed.saturating_add(1);
                    return self.refuse_stream(number, Refusal::Malformed);
                }
            }
        }
    }

    /// Reports a connection with a complete record to the driver.
    fn on_open(&mut self, now: Instant, number: u64, open: OpenRecord) {
        let Ok(source) = self.join(now, &open) else {
            return self.refuse_stream(number, Refusal::LimitReached);
        };
        self.clear_deadline(number);
        let deadline = now + DIAL_MAX;
        if let Some(conn) = self.conns.get_mut(&number) {
            conn.source = Some(source);
            conn.stage = TunnelConnState::Dialling;
            conn.deadline = Some(deadline);
        }
        self.deadlines.insert((deadline, number));
        let conn = self.id(number);
        self.events.push_back(TunnelEvent::Asked { conn, open });
    }

    fn read_answer(&mut self, number: u64, stream: StreamId) {
        match self.quic.read(stream, 1) {
            Read::Bytes(bytes) if *bytes == [ACCEPTED] => {
                self.clear_deadline(number);
                if let Some(conn) = self.conns.get_mut(&number) {
                    conn.stage = TunnelConnState::Open;
                }
                self.stats.accepted = self.stats.accepted.saturating_add(1);
                let conn = self.id(number);
                self.events.push_back(TunnelEvent::Accepted { conn });
            }
            Read::Reset(code) => self.on_broken(number, code),
            Read::Bytes(_) | Read::Finished => {
                self.quic.reset(stream, RESET);
                self.end(number, ConnEnd::Refused(Refusal::Malformed));
            }
            Read::Nothing => {}
        }
    }

    /// Reads the stream's next bytes if the driver has consumed the previous ones.
    pub(super) fn fill(&mut self, number: u64) {
        let Some((conn, stream)) = self.with_stream(number) else {
            return;
        };
        let is_open = matches!(conn.stage, TunnelConnState::Open) && conn.inbound == Inbound::Open;
        if !is_open || !conn.chunk.is_empty() {
            return;
        }
        match self.quic.read(stream, CHUNK_MAX) {
            Read::Bytes(bytes) => {
                if let Some(conn) = self.conns.get_mut(&number) {
                    conn.chunk = bytes;
                }
            }
            Read::Finished => self.on_all_read(number),
            Read::Reset(code) => self.on_broken(number, code),
            Read::Nothing => {}
        }
    }

    /// Emits `Readable`, or `Finished` at the end of the stream, if the driver waits for it.
    pub(super) fn notify_readable(&mut self, number: u64) {
        if !self.conns.get(&number).is_some_and(|conn| conn.wants.read) {
            return;
        }
        self.fill(number);
        let id = self.id(number);
        if let Some(conn) = self.conns.get_mut(&number)
            && !conn.chunk.is_empty()
        {
            conn.wants.read = false;
            self.events.push_back(TunnelEvent::Readable { conn: id });
        }
    }

    fn on_all_read(&mut self, number: u64) {
        if let Some(conn) = self.conns.get_mut(&number) {
            conn.inbound = Inbound::Ended;
        }
        let conn = self.id(number);
        self.events.push_back(TunnelEvent::Finished { conn });
        self.end_if_done(number);
    }

    pub(super) fn on_writable(&mut self, number: u64) {
        if !self.flush(number) {
            return;
        }
        let id = self.id(number);
        if let Some(conn) = self.conns.get_mut(&number)
            && conn.wants.write
        {
            conn.wants.write = false;
            self.events.push_back(TunnelEvent::Writable { conn: id });
        }
    }

    /// Writes our own first bytes and, if the driver has finished, the end of the stream; returns
    /// true when nothing of ours is left.
    pub(super) fn flush(&mut self, number: u64) -> bool {
        let Some(conn) = self.conns.get_mut(&number) else {
            return false;
        };
        let Some(stream) = conn.stream else {
            return false;
        };
        if !conn.first.is_empty() {
            match self.quic.write(stream, &conn.first) {
                Written::Taken(taken) => {
                    conn.first.drain(..taken.min(conn.first.len()));
                }
                Written::Stopped(code) => {
                    self.on_broken(number, code);
                    return false;
                }
            }
        }
        if !conn.first.is_empty() {
            return false;
        }
        if conn.outbound == Outbound::Ending && conn.may_write() {
            conn.outbound = Outbound::Ended;
            self.quic.finish(stream);
        }
        true
    }

    fn on_delivered(&mut self, number: u64) {
        if let Some(conn) = self.conns.get_mut(&number) {
            conn.outbound = Outbound::Delivered;
        }
        self.end_if_done(number);
    }

    /// Handles a reset of one half by the remote end, which ends the connection.
    pub(super) fn on_broken(&mut self, number: u64, code: u64) {
        let Some(conn) = self.conns.get(&number) else {
            return;
        };
        let is_asking = matches!(conn.stage, TunnelConnState::Asking);
        if let Some(stream) = conn.stream {
            self.quic.reset(stream, RESET);
        }
        let end = match Refusal::of_code(code) {
            Some(why) if is_asking => ConnEnd::Refused(why),
            _ => ConnEnd::Reset,
        };
        self.end(number, end);
    }

    /// Ends connections past their deadline.
    pub(super) fn end_overdue(&mut self, now: Instant) {
        while let Some(&(deadline, number)) = self.deadlines.first() {
            if now < deadline {
                return;
            }
            self.deadlines.pop_first();
            self.stats.unanswered = self.stats.unanswered.saturating_add(1);
            let Some(conn) = self.conns.get(&number) else {
                continue;
            };
            let code = match conn.stage {
                TunnelConnState::Reading(_) => Refusal::Malformed.code(),
                TunnelConnState::Dialling => Refusal::Slow.code(),
                TunnelConnState::Asking | TunnelConnState::Open => RESET,
            };
            if let Some(stream) = conn.stream {
                self.quic.reset(stream, code);
            }
            if matches!(conn.stage, TunnelConnState::Reading(_)) {
                self.remove(number);
            } else {
                self.end(number, ConnEnd::Unanswered);
            }
        }
    }

    /// Refuses a stream of the entry.
    pub(super) fn refuse_stream(&mut self, number: u64, why: Refusal) {
        if let Some((_, stream)) = self.with_stream(number) {
            self.quic.reset(stream, why.code());
        }
        self.stats.refused = self.stats.refused.saturating_add(1);
        self.remove(number);
    }

    /// Ends all connections and the tunnel.
    pub(super) fn go_down(&mut self, end: TunnelEnd) {
        if self.state == TunnelState::Closed {
            return;
        }
        self.state = TunnelState::Closed;
        while let Some((&number, _)) = self.conns.first_key_value() {
            self.end(number, ConnEnd::Lost(end));
        }
        self.waiting.clear();
        self.events.push_back(TunnelEvent::Down { end });
    }

    fn end_if_done(&mut self, number: u64) {
        if self.conns.get(&number).is_some_and(Conn::is_done) {
            self.end(number, ConnEnd::Done);
        }
    }

    /// Removes a connection that the driver knows, and reports its end.
    pub(super) fn end(&mut self, number: u64, end: ConnEnd) {
        let Some(conn) = self.conns.get(&number) else {
            return;
        };
        let is_known = !matches!(conn.stage, TunnelConnState::Reading(_));
        match end {
            ConnEnd::Done => self.stats.done = self.stats.done.saturating_add(1),
            ConnEnd::Refused(_) => self.stats.refused = self.stats.refused.saturating_add(1),
            ConnEnd::Reset => self.stats.reset = self.stats.reset.saturating_add(1),
            ConnEnd::Unanswered | ConnEnd::Lost(_) => {}
        }
        self.remove(number);
        if is_known {
            let conn = self.id(number);
            self.events.push_back(TunnelEvent::Ended { conn, end });
        }
    }

    pub(super) fn add(&mut self, conn: Conn) -> u64 {
        let number = self.next;
        self.next = self.next.saturating_add(1);
        if let Some(deadline) = conn.deadline {
            self.deadlines.insert((deadline, number));
        }
        self.conns.insert(number, conn);
        number
    }

    /// Removes a connection and frees its slot.
    pub(super) fn remove(&mut self, number: u64) {
        let Some(conn) = self.conns.remove(&number) else {
            return;
        };
        if let Some(stream) = conn.stream {
            self.by_stream.remove(&stream);
        }
        if let Some(deadline) = conn.deadline {
            self.deadlines.remove(&(deadline, number));
        }
        if let Some(source) = conn.source {
            self.limiter.release(source);
        }
        if conn.stream.is_none() {
            self.waiting.retain(|&waits| waits != number);
        }
    }

    fn has_room(&self) -> bool {
        u32::try_from(self.conns.len()).is_ok_and(|conns| conns < self.players_max)
    }

    /// Counts a connection, or returns the limit that it would exceed.
    pub(super) fn join(
        &mut self,
        now: Instant,
        open: &OpenRecord,
    ) -> Result<SourceKey, LimitError> {
        let source = SourceKey::of(open.player.ip());
        let joined = self.limiter.take(now, source).map(|()| source);
        let counter = match joined {
            Ok(_) => return joined,
            Err(LimitError::Total) => &mut self.stats.over_players,
            Err(LimitError::Source) => &mut self.stats.over_address,
            Err(LimitError::Rate) => &mut self.stats.over_rate,
        };
        *counter = counter.saturating_add(1);
        joined
    }

    pub(super) fn clear_deadline(&mut self, number: u64) {
        let conn = self.conns.get_mut(&number);
        if let Some(deadline) = conn.and_then(|conn| conn.deadline.take()) {
            self.deadlines.remove(&(deadline, number));
        }
    }

    fn with_stream(&self, number: u64) -> Option<(&Conn, StreamId)> {
        let conn = self.conns.get(&number)?;
        Some((conn, conn.stream?))
    }
}

fn end_of(reason: &ConnectionError) -> TunnelEnd {
    let code = match reason {
        ConnectionError::TransportError(error) => u64::from(error.code),
        ConnectionError::ConnectionClosed(close) => u64::from(close.error_code),
        ConnectionError::ApplicationClosed(_) => return TunnelEnd::Closed,
        ConnectionError::TimedOut => return TunnelEnd::Silent,
        ConnectionError::LocallyClosed => return TunnelEnd::Local,
        ConnectionError::VersionMismatch
        | ConnectionError::Reset
        | ConnectionError::CidsExhausted => return TunnelEnd::Protocol,
    };
    if CRYPTO_ERRORS.contains(&code) {
        TunnelEnd::Identity
    } else {
        TunnelEnd::Protocol
    }
}

/// QUIC error codes of a failed TLS handshake; RFC 9000, section 20.1.
const CRYPTO_ERRORS: core::ops::RangeInclusive<u64> = 0x100..=0x1FF;
