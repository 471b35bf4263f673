//! The client's handshake: attempts until a session or failure.

use core::net::SocketAddr;
use core::time::Duration;

use crypto::{
    CertificateError, Initial, NoEntropy, Provider, PublicKey, Role, Secret32, SessionSecrets,
    Suite, SuiteSet,
};
use wire::{Generator, Instant, UnixTime};

use super::accept::{AcceptBody, AcceptClear, CLEAR_LEN, TAG_LEN};
use super::hello::{self, Hello, Hello0};
use super::params::Params;
use super::reply::{Refuse, Retry, Versions};
use super::target::{Credentials, Target};
use super::target::{Moment, SignedAccept, VerifyError};
use super::{transcript_0, transcript_1};
use crate::config::{SpokenVersions, Timeouts};
use crate::error::{CloseCode, ConnectFailure};
use crate::packet::Cid;

pub(crate) struct Dial<P: Provider> {
    target: Target,
    /// Fields common to all HELLOs of the dial.
    form: HelloForm,
    /// Timeouts of the new session.
    timeouts: Timeouts,
    /// Keys derived from the PSK alone.
    initial: Initial,
    /// The HELLO of the current attempt.
    hello: Vec<u8>,
    hello_id: u64,
    version: u32,
    /// A VERSION was followed; a second one is ignored.
    has_restarted: bool,
    ephemeral: P::Ephemeral,
    /// Index into the addresses.
    at: usize,
    next_address_at: Instant,
    resend_at: Instant,
    interval: Duration,
    give_up_at: Instant,
    /// When the last HELLO was sent, for the first RTT sample.
    sent_at: Instant,
    is_due: bool,
    /// RETRYs followed in this attempt at this address.
    retries: u8,
    hellos: u8,
    agreements: u8,
    /// ACCEPTs that failed a check, over all attempts.
    rejected: u8,
    /// The code of a REFUSE without proof.
    hint: Option<CloseCode>,
    /// When the current address was first tried.
    began_at: Instant,
    /// When the HELLO was first sent, after the first RETRY if there was one.
    asked_at: Option<Instant>,
    /// Refusals without proof from the current address.
    unproved: u8,
    /// When these end the attempt at that address.
    unproved_until: Instant,
    /// Addresses that refused: bit n is index n.
    refused: u8,
    /// The problem of the last certificate.
    certificate: Option<CertificateError>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) now: Instant,
    /// The wall clock, if set.
    pub(crate) unix: Option<UnixTime>,
}

/// Fields common to all HELLOs of one dial.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HelloForm {
    pub(crate) app_id: u64,
    pub(crate) versions: SpokenVersions,
    pub(crate) suites: SuiteSet,
    pub(crate) client_cid: Cid,
}

/// The result of a valid ACCEPT.
pub(crate) struct Accepted {
    /// Its source, which becomes the peer's address.
    pub(crate) server: SocketAddr,
    pub(crate) server_cid: Cid,
    pub(crate) server_key: PublicKey,
    pub(crate) suite: Suite,
    pub(crate) secrets: SessionSecrets,
    pub(crate) params: Params,
    /// Transcript hash that an IDENTITY signs.
    pub(crate) th1: [u8; 32],
    /// From HELLO to ACCEPT, if it is certain which HELLO was answered.
    pub(crate) round_trip: Option<Duration>,
}

/// First retransmission delay of a HELLO; each further one is half as long again. TWP/1, section
/// 11.
const RESEND_FIRST: Duration = Duration::from_millis(250);
/// Longest retransmission delay of a HELLO.
const RESEND_MAX: Duration = Duration::from_secs(1);
/// How long each address is tried.
const ADDRESS_SPAN: Duration = Duration::from_millis(2_500);
/// Most RETRYs followed in one attempt, so that forged ones cannot prolong it.
const RETRIES_MAX: u8 = 3;
/// Most key agreements in one attempt; then a new key is drawn.
const AGREEMENTS_MAX: u8 = 16;
/// Refusals without proof that end the attempt at an address.
///
/// Each echoes the random hello id: an attacker that can forge that reads the client's packets.
const UNPROVED_MIN: u8 = 2;
/// How long after the first HELLO to an address an ACCEPT may follow refusals without proof: this,
/// or three round trips if longer.
const UNPROVED_SPAN: Duration = Duration::from_secs(1);

impl<P: Provider> Dial<P> {
    /// Draws a key and builds the first HELLO. The target was checked.
    pub(crate) fn new(
        now: Instant,
        provider: &mut P,
        generator: &mut Generator,
        start: DialStart<'_>,
    ) -> Result<Self, NoEntropy> {
        let (ephemeral, key) = provider.ephemeral(Role::Dialler)?;
        let psk = match &start.target.credentials {
            Credentials::Token { psk, .. } => Some(psk),
            Credentials::Peer => start.network,
            Credentials::Open => None,
        };
        let mut dial = Self {
            initial: Initial::new(provider, psk),
            target: start.target,
            timeouts: start.timeouts,
            form: start.form,
            hello: Vec::with_capacity(hello::LEN),
            hello_id: 0,
            version: start.form.versions.best(),
            has_restarted: false,
            ephemeral,
            at: 0,
            next_address_at: now + ADDRESS_SPAN,
            resend_at: now,
            interval: RESEND_FIRST,
            give_up_at: now + start.timeouts.connect,
            sent_at: now,
            is_due: true,
            retries: 0,
            hellos: 0,
            agreements: 0,
            rejected: 0,
            hint: None,
            began_at: now,
            asked_at: None,
            unproved: 0,
            unproved_until: now,
            refused: 0,
            certificate: None,
        };
        dial.lay_out(now, provider, generator, key);
        Ok(dial)
    }

    pub(crate) const fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    pub(crate) const fn client_cid(&self) -> Cid {
        self.form.client_cid
    }

    /// Schedules the HELLO if a packet from the current address shows that the path works, at most
    /// once in [`RESEND_FIRST`], since such packets can be forged. Returns whether it did.
    pub(crate) fn on_packet_from(&mut self, now: Instant, from: SocketAddr) -> bool {
        let is_due =
            from == self.address() && self.hellos > 0 && now >= self.sent_at + RESEND_FIRST;
        self.is_due |= is_due;
        is_due
    }

    /// Processes a RETRY: the same HELLO is sent again with the cookie.
    pub(crate) fn on_retry(&mut self, now: Instant, from: SocketAddr, retry: &Retry) -> bool {
        let is_ours = (retry.version, retry.hello_id) == (self.version, self.hello_id)
            && from == self.address();
        if !is_ours || self.retries >= RETRIES_MAX {
            return false;
        }
        if self.retries == 0 {
            self.asked_at = None;
        }
        self.retries = self.retries.saturating_add(1);
        hello::set_cookie(&mut self.hello, &retry.cookie);
        self.interval = RESEND_FIRST;
        self.resend_at = now;
        self.is_due = true;
        true
    }

    /// Processes a REFUSE. One with a proof ends the attempt. Several without end it in
    /// [`handle_timeout`](Self::handle_timeout), unless an ACCEPT arrives first.
    pub(crate) fn on_refuse(
        &mut self,
        now: Instant,
        provider: &P,
        (from, refuse): (SocketAddr, &Refuse),
    ) -> Option<ConnectFailure> {
        if (refuse.version, refuse.hello_id) != (self.version, self.hello_id) {
            return None;
        }
        let code = CloseCode::from_wire(refuse.reason);
        let is_proved = !matches!(self.target.credentials, Credentials::Open)
            && crypto::equal(
                &self.initial.refuse_mac(provider, &[&refuse.covered()]),
                &refuse.mac,
            );
        if is_proved {
            return Some(ConnectFailure::Refused(code));
        }
        if from == self.address() {
            self.hint = Some(code);
            self.on_unproved(now);
        }
        None
    }

    /// Counts a refusal without proof from the current address.
    fn on_unproved(&mut self, now: Instant) {
        if self.unproved == 0 {
            let asked_at = self.asked_at.unwrap_or(self.sent_at);
            let round_trips = now.saturating_since(asked_at).saturating_mul(3);
            self.unproved_until = self.began_at + round_trips.max(UNPROVED_SPAN);
            // Do not wait for the next retransmission to get the second one.
            self.is_due = true;
        }
        self.unproved = self.unproved.saturating_add(1);
    }

    /// Returns whether refusals without proof ended the attempt at the current address.
    fn is_refused(&self, now: Instant) -> bool {
        self.unproved >= UNPROVED_MIN && now >= self.unproved_until
    }

    /// Moves to the next address that has not refused. Returns whether there is one.
    fn next_address(&mut self, now: Instant) -> bool {
        let count = self.target.addresses.len();
        let next = (1..=count)
            .filter_map(|step| self.at.saturating_add(step).checked_rem(count))
            .find(|index| self.refused & 1 << index == 0);
        let Some(next) = next else {
            return false;
        };
        self.at = next;
        self.next_address_at = now + ADDRESS_SPAN;
        self.interval = RESEND_FIRST;
        self.retries = 0;
        self.began_at = now;
        self.asked_at = None;
        self.unproved = 0;
        // A cookie is valid only at the server that issued it.
        hello::clear_cookie(&mut self.hello);
        self.resend_at = now;
        true
    }

    /// Processes a VERSION: restarts once with the highest common version. One that lists the
    /// version of our HELLO contradicts itself and is ignored. A forged one cannot cause a
    /// downgrade, since a server refuses a HELLO of a lower version than both support.
    pub(crate) fn on_versions(
        &mut self,
        now: Instant,
        provider: &mut P,
        generator: &mut Generator,
        (from, versions): (SocketAddr, &Versions),
    ) -> bool {
        let named = versions.named();
        let is_answer = versions.hello_id == self.hello_id && from == self.address();
        if !is_answer || self.has_restarted || named.contains(&self.version) {
            return false;
        }
        let spoken = self.form.versions;
        let common = named.iter().filter(|version| spoken.contains(**version));
        let Some(version) = common.max() else {
            self.hint = Some(CloseCode::Version);
            self.on_unproved(now);
            return true;
        };
        let Ok((ephemeral, key)) = provider.ephemeral(Role::Dialler) else {
            return false;
        };
        self.version = *version;
        self.has_restarted = true;
        self.ephemeral = ephemeral;
        self.lay_out(now, provider, generator, key);
        true
    }

    /// Processes an ACCEPT. If it fails a check, the attempt continues with the same key.
    pub(crate) fn on_accept(
        &mut self,
        clock: Clock,
        provider: &mut P,
        from: SocketAddr,
        datagram: &mut [u8],
    ) -> Option<Accepted> {
        let clear = AcceptClear::decode(datagram).ok()?;
        // A copy from elsewhere would make its sender the server's address.
        let is_answer = (clear.version, clear.hello_id) == (self.version, self.hello_id)
            && self.may_reach(from);
        if !is_answer || !self.form.suites.contains(clear.suite) {
            return None;
        }
        let accepted = self.check_accept(clock, provider, (from, &clear), datagram);
        if accepted.is_none() {
            self.rejected = self.rejected.saturating_add(1);
            if from == self.address() {
                self.on_unproved(clock.now);
            }
        }
        accepted
    }

    pub(crate) fn handle_timeout(
        &mut self,
        now: Instant,
        provider: &mut P,
        generator: &mut Generator,
    ) -> Option<ConnectFailure> {
        if now >= self.give_up_at {
            return Some(self.failure());
        }
        if self.agreements >= AGREEMENTS_MAX {
            match provider.ephemeral(Role::Dialler) {
                Ok((ephemeral, key)) => {
                    self.ephemeral = ephemeral;
                    self.lay_out(now, provider, generator, key);
                }
                Err(NoEntropy) => return Some(ConnectFailure::NoEntropy),
            }
        }
        if self.is_refused(now) {
            self.refused |= 1 << self.at;
            if !self.next_address(now) {
                return Some(self.failure());
            }
        } else if now >= self.next_address_at && self.target.addresses.len() > 1 {
            self.next_address(now);
        }
        if now >= self.resend_at {
            self.is_due = true;
            let jitter = generator.between(800, 1_200);
            let jitter = u32::try_from(jitter).unwrap_or(1_000);
            let wait = self.interval.saturating_mul(jitter);
            let wait = wait.checked_div(1_000).unwrap_or_default();
            self.resend_at = now + wait;
            let half = self.interval.checked_div(2).unwrap_or_default();
            self.interval = self.interval.saturating_add(half).min(RESEND_MAX);
        }
        None
    }

    /// Appends the HELLO if due.
    pub(crate) fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<SocketAddr> {
        if !core::mem::take(&mut self.is_due) {
            return None;
        }
        self.sent_at = now;
        self.asked_at.get_or_insert(now);
        self.hellos = self.hellos.saturating_add(1);
        if self.resend_at <= now {
            self.resend_at = now + self.interval;
        }
        buf.extend_from_slice(&self.hello);
        Some(self.address())
    }

    pub(crate) fn poll_timeout(&self) -> Instant {
        let mut next = self.give_up_at.min(self.resend_at);
        if self.target.addresses.len() > 1 {
            next = next.min(self.next_address_at);
        }
        if self.unproved >= UNPROVED_MIN {
            next = next.min(self.unproved_until);
        }
        next
    }

    /// Returns the id that replies to this attempt echo.
    pub(crate) const fn hello_id(&self) -> u64 {
        self.hello_id
    }

    /// Returns whether `address` is one of the target's.
    pub(crate) fn may_reach(&self, address: SocketAddr) -> bool {
        self.target.addresses.contains(&address)
    }

    /// Returns whether to send our own identity.
    pub(crate) const fn is_peer_mode(&self) -> bool {
        matches!(self.target.credentials, Credentials::Peer)
    }

    /// Returns the failure that the answers so far indicate.
    pub(crate) const fn failure(&self) -> ConnectFailure {
        if let Some(error) = self.certificate {
            return ConnectFailure::Certificate(error);
        }
        match (self.hint, self.rejected) {
            (Some(CloseCode::Version), _) => ConnectFailure::Version,
            (Some(code), _) => ConnectFailure::RefusedUnproved(code),
            (None, 0) => ConnectFailure::Timeout,
            (None, rejected) => ConnectFailure::NotTheServer { rejected },
        }
    }

    fn check_accept(
        &mut self,
        clock: Clock,
        provider: &mut P,
        (from, clear): (SocketAddr, &AcceptClear),
        datagram: &mut [u8],
    ) -> Option<Accepted> {
        if self.agreements >= AGREEMENTS_MAX {
            return None;
        }
        self.agreements = self.agreements.saturating_add(1);
        if self.agreements == AGREEMENTS_MAX {
            self.resend_at = clock.now;
        }
        let shared = provider
            .agree(&mut self.ephemeral, &clear.server_ephemeral)
            .ok()?;
        let agreed = self.initial.agree(provider, &shared);
        let hello0 = Hello0::new(&self.hello)?;
        let th1 = transcript_1(provider, &hello0, datagram);
        let (head, sealed) = datagram.split_at_mut_checked(CLEAR_LEN)?;
        let th0 = transcript_0(provider, &hello0, head);
        let (body, tag) = sealed.split_at_mut_checked(sealed.len().checked_sub(TAG_LEN)?)?;
        let tag: &[u8; TAG_LEN] = (&*tag).try_into().ok()?;
        agreed
            .accept_key(provider, clear.suite, &th0)
            .open(head, body, tag)
            .ok()?;

        let body = AcceptBody::decode(body).ok()?;
        let params = Params::decode(&body.params).ok()?;
        let accept = SignedAccept {
            hello0,
            clear: head,
            body: &body,
        };
        let moment = Moment {
            app_id: self.form.app_id,
            unix: clock.unix,
        };
        let server_key = match self.target.server.signer(provider, &accept, moment) {
            Ok(key) => key,
            Err(VerifyError::Signature) => return None,
            Err(VerifyError::Certificate(error)) => {
                self.certificate = Some(error);
                return None;
            }
        };
        Some(Accepted {
            server: from,
            server_cid: clear.server_cid,
            server_key,
            suite: clear.suite,
            secrets: agreed.traffic(provider, &th1),
            params,
            th1,
            round_trip: self.round_trip(clock.now),
        })
    }

    /// Returns the RTT from the HELLO that an ACCEPT answers. With retransmissions it is unknown
    /// which one that was (Karn and Partridge, 1987).
    fn round_trip(&self, now: Instant) -> Option<Duration> {
        matches!((self.hellos, self.retries), (1, 0) | (2, 1))
            .then(|| now.saturating_since(self.sent_at))
    }

    fn address(&self) -> SocketAddr {
        // `Target::check` ensured at least one, and `at` is reduced modulo their count.
        self.target
            .addresses
            .get(self.at)
            .copied()
            .unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)))
    }

    fn lay_out(
        &mut self,
        now: Instant,
        provider: &P,
        generator: &mut Generator,
        client_ephemeral: PublicKey,
    ) {
        self.hello_id = generator.next_u64();
        self.retries = 0;
        self.hellos = 0;
        self.asked_at = None;
        self.agreements = 0;
        self.interval = RESEND_FIRST;
        self.resend_at = now;
        self.is_due = true;
        let token = match &self.target.credentials {
            Credentials::Token { token, .. } => token.as_slice(),
            Credentials::Open | Credentials::Peer => &[],
        };
        self.hello.clear();
        Hello {
            version: self.version,
            version_max: self.form.versions.best(),
            app_id: self.form.app_id,
            hello_id: self.hello_id,
            suites: self.form.suites.bits(),
            client_cid: self.form.client_cid,
            client_ephemeral,
            cookie: None,
            psk_mac: [0; 16],
            token,
        }
        .encode(&mut self.hello);
        if matches!(self.target.credentials, Credentials::Open) {
            return;
        }
        let mac = Hello0::new(&self.hello)
            .map(|hello0| self.initial.hello_mac(provider, &hello0.mac_parts()));
        if let Some(mac) = mac {
            hello::set_psk_mac(&mut self.hello, &mac);
        }
    }
}

pub(crate) struct DialStart<'a> {
    pub(crate) target: Target,
    pub(crate) form: HelloForm,
    /// The PSK of peer mode.
    pub(crate) network: Option<&'a Secret32>,
    pub(crate) timeouts: Timeouts,
}
