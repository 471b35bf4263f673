//! Where a datagram goes: by its first byte, then by the attempt or session that it names.

use core::net::SocketAddr;

use crypto::{Provider, Role};
use wire::{Arrival, Instant};

use super::admission::Fate;
use super::first_packet::confirm_body;
use super::{Endpoint, Slot};
use crate::event::{Event, Proof};
use crate::handshake::dial::{Accepted, Clock};
use crate::handshake::params::{DATAGRAM_MAX, Params};
use crate::handshake::peer::IdentityClaim;
use crate::handshake::reply::{Refuse, Retry, Versions};
use crate::packet::{Header, Kind};
use crate::session::{Keying, Opened, Path, Session, SessionStart};
use crate::slots::SessionId;
use crate::timeouts::Timeouts;

impl<P: Provider> Endpoint<P> {
    pub(super) fn on_datagram(
        &mut self,
        now: Instant,
        arrival: &Arrival<SocketAddr>,
        datagram: &mut [u8],
    ) {
        self.stats.bytes_received = self
            .stats
            .bytes_received
            .saturating_add(u64::try_from(datagram.len()).unwrap_or(0));
        if self.is_blocked(now, (arrival.peer, arrival.real_source)) {
            self.stats.dropped_blocked = self.stats.dropped_blocked.saturating_add(1);
            return;
        }
        if self.events.len() >= self.config.events_max {
            self.stats.dropped_overload = self.stats.dropped_overload.saturating_add(1);
            return;
        }
        let Some(&first) = datagram.first() else {
            self.stats.dropped_length = self.stats.dropped_length.saturating_add(1);
            return;
        };
        if datagram.len() > usize::from(DATAGRAM_MAX) {
            self.stats.dropped_length = self.stats.dropped_length.saturating_add(1);
            return;
        }
        match Kind::of(first) {
            Kind::Hello => {
                let fate = self.on_hello(now, arrival, datagram);
                self.count(fate);
            }
            Kind::Retry | Kind::Accept | Kind::Refuse | Kind::Version => {
                if self.on_reply(now, arrival, datagram) {
                    self.stats.replies = self.stats.replies.saturating_add(1);
                } else {
                    self.stats.dropped_reply = self.stats.dropped_reply.saturating_add(1);
                }
            }
            Kind::Protected => self.on_packet(now, arrival, datagram),
            Kind::Envelope | Kind::NotOurs => {
                self.stats.dropped_first_byte = self.stats.dropped_first_byte.saturating_add(1);
            }
        }
    }

    const fn count(&mut self, fate: Fate) {
        let stats = &mut self.stats;
        let counter = match fate {
            Fate::Accepted => &mut stats.accepted,
            Fate::AcceptRepeated => &mut stats.accept_repeated,
            Fate::Retried => &mut stats.retried,
            Fate::Refused => &mut stats.refused,
            Fate::VersionOffered => &mut stats.version_offered,
            Fate::Malformed => &mut stats.dropped_malformed,
            Fate::OtherApp => &mut stats.dropped_app,
            Fate::ModeNotServed => &mut stats.dropped_mode,
            Fate::BadToken => &mut stats.dropped_token,
            Fate::TokenExpired => &mut stats.dropped_token_expired,
            Fate::TokenClock => &mut stats.dropped_token_clock,
            Fate::TokenUsed => &mut stats.dropped_token_used,
            Fate::BadPsk => &mut stats.dropped_psk,
            Fate::OverAnswerBudget => &mut stats.dropped_answer_budget,
            Fate::NoHalfOpenSlot => &mut stats.dropped_half_open,
            Fate::OverAcceptBudget => &mut stats.dropped_accept_budget,
            Fate::BadPoint => &mut stats.dropped_bad_point,
            Fate::Overload => &mut stats.dropped_overload,
        };
        *counter = counter.saturating_add(1);
    }

    /// Takes a reply to a HELLO of ours; returns whether it was one.
    fn on_reply(
        &mut self,
        now: Instant,
        arrival: &Arrival<SocketAddr>,
        datagram: &mut [u8],
    ) -> bool {
        let Some(id) = hello_id(datagram).and_then(|hello_id| self.dials.get(&hello_id).copied())
        else {
            return false;
        };
        let unix = self.unix_time();
        let Some(Slot::Dial(dial)) = self.slots.get_mut(id) else {
            return false;
        };
        let kind = datagram
            .first()
            .map_or(Kind::NotOurs, |first| Kind::of(*first));
        match kind {
            Kind::Retry => {
                let is_taken = Retry::decode(datagram)
                    .is_ok_and(|retry| dial.on_retry(now, arrival.peer, &retry));
                self.arm(id);
                is_taken
            }
            Kind::Version => {
                let Ok(versions) = Versions::decode(datagram) else {
                    return false;
                };
                let old = dial.hello_id();
                let answer = (arrival.peer, &versions);
                let draws = &mut self.generator;
                let is_taken = dial.on_versions(now, &mut self.provider, draws, answer);
                let new = dial.hello_id();
                if new != old {
                    self.dials.remove(&old);
                    self.dials.insert(new, id);
                }
                self.arm(id);
                is_taken
            }
            Kind::Refuse => {
                let Ok(refuse) = Refuse::decode(datagram) else {
                    return false;
                };
                if let Some(failure) = dial.on_refuse(now, &self.provider, (arrival.peer, &refuse))
                {
                    self.remove(now, id);
                    self.events.push_back(Event::ConnectFailed {
                        session: id,
                        failure,
                    });
                } else {
                    self.arm(id);
                }
                true
            }
            Kind::Accept => {
                let clock = Clock { now, unix };
                let accepted = dial.on_accept(clock, &mut self.provider, arrival.peer, datagram);
                let (is_peer, timeouts) = (dial.is_peer_mode(), dial.timeouts());
                self.arm(id);
                accepted.is_some_and(|accepted| {
                    self.on_accepted(now, arrival, id, (accepted, is_peer, timeouts))
                })
            }
            Kind::Hello | Kind::Protected | Kind::Envelope | Kind::NotOurs => false,
        }
    }

    /// The dial `id` has become a session.
    fn on_accepted(
        &mut self,
        now: Instant,
        arrival: &Arrival<SocketAddr>,
        id: SessionId,
        (accepted, is_peer, timeouts): (Accepted, bool, Timeouts),
    ) -> bool {
        let boot_id = self.listener.as_ref().map(|listener| listener.boot_id());
        let mut params =
            Params::of(&self.config, boot_id.unwrap_or_default()).with_timeouts(&timeouts);
        if is_peer {
            params.reset_token = self.token_of_dial(id);
        }
        let confirm = confirm_body(&params.encode(), &self.channel_digest);
        let server = accepted.server_key.node_id();
        let identity = match (&self.listener, is_peer) {
            (Some(listener), true) => {
                let claim = IdentityClaim {
                    th1: &accepted.th1,
                    dialler: listener.node,
                    accepter: server,
                    confirm: &confirm,
                };
                match claim.sign(&mut self.provider, &listener.signing_key, &listener.key) {
                    Ok(body) => Some(body),
                    // The dial goes on; the next ACCEPT may find entropy.
                    Err(crypto::NoEntropy) => return false,
                }
            }
            _ => None,
        };
        let proof = if is_peer {
            Proof::Node(server)
        } else {
            Proof::Server(accepted.server_key)
        };
        let round_trip = accepted.round_trip.unwrap_or_default();
        let began = now.saturating_sub(round_trip);
        let start = SessionStart {
            role: Role::Dialler,
            path: Path::fixed(accepted.server, arrival.local),
            peer_cid: accepted.server_cid,
            suite: accepted.suite,
            secrets: accepted.secrets,
            peer_params: accepted.params,
            round_trip: accepted.round_trip,
            confirm: Some((confirm, identity)),
            proof: proof.clone(),
            source: None,
            timeouts,
        };
        let session = Session::new(
            now,
            &self.config,
            &self.provider,
            &mut self.generator,
            start,
        );
        let Some(Slot::Dial(dial)) = self.slots.replace(id, Slot::Session(Box::new(session)))
        else {
            return false;
        };
        self.dials.remove(&dial.hello_id());
        if self.config.cid_len.bytes() == 0 {
            self.by_address.insert(accepted.server, id);
        }
        self.note_resettable(id);
        self.connected(now, (id, began), accepted.server, proof);
        true
    }

    /// Takes a protected packet.
    fn on_packet(&mut self, now: Instant, arrival: &Arrival<SocketAddr>, datagram: &mut [u8]) {
        let cid_len = self.config.cid_len.bytes();
        let Ok(header) = Header::decode(datagram, cid_len) else {
            self.stats.dropped_header = self.stats.dropped_header.saturating_add(1);
            self.on_unopened(now, arrival, datagram);
            return;
        };
        let id = if cid_len == 0 {
            self.by_address.get(&arrival.peer).copied()
        } else {
            self.slots.by_cid(header.destination)
        };
        let Some(id) = id else {
            self.stats.dropped_unknown_session =
                self.stats.dropped_unknown_session.saturating_add(1);
            self.on_unopened(now, arrival, datagram);
            self.offer_reset(now, arrival, (header.destination, datagram.len()));
            self.resend_hellos_to(now, arrival.peer);
            return;
        };
        match self.slots.get_mut(id) {
            Some(Slot::Session(session)) => {
                let keying = Keying {
                    provider: &self.provider,
                    limits: &self.config.key_limits,
                };
                let opened = session.handle_packet(now, arrival, (&header, datagram), &keying);
                let stats = &mut self.stats;
                let counter = match opened {
                    Opened::Taken => &mut stats.packets,
                    Opened::Replayed => &mut stats.dropped_replayed,
                    Opened::Forged => &mut stats.dropped_forged,
                    Opened::Over => &mut stats.dropped_over_limit,
                    Opened::Late => &mut stats.dropped_late,
                    Opened::Astray => &mut stats.dropped_astray,
                };
                *counter = counter.saturating_add(1);
                let is_opened = opened == Opened::Taken;
                self.settle(now, id);
                if !is_opened {
                    self.on_unopened(now, arrival, datagram);
                }
            }
            Some(Slot::HalfOpen(_)) => self.on_first_packet(now, arrival, id, (&header, datagram)),
            Some(Slot::Dial(_)) | None => {
                self.stats.dropped_unknown_session =
                    self.stats.dropped_unknown_session.saturating_add(1);
            }
        }
    }
}

/// Returns the hello id that a reply echoes, wherever its kind keeps it.
fn hello_id(datagram: &[u8]) -> Option<u64> {
    let at = match Kind::of(*datagram.first()?) {
        Kind::Version => 1,
        Kind::Hello
        | Kind::Retry
        | Kind::Accept
        | Kind::Refuse
        | Kind::Protected
        | Kind::Envelope
        | Kind::NotOurs => 5,
    };
    let bytes = datagram.get(at..)?.first_chunk::<8>()?;
    Some(u64::from_be_bytes(*bytes))
}
