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
use super::target::{SignedAccept, VerifyContext, VerifyError};
use super::{transcript_0, transcript_1};
use crate::config::{SpokenVersions, Timeouts};
use crate::error::{CloseCode, ConnectFailure};
use crate::packet::Cid;

pub(crate) struct Dial<P: Provider> {
    target: Target,
    pub(crate) form: HelloForm,
    /// Timeouts of the new session.
    pub(crate) timeouts: Timeouts,
    /// Keys derived from the PSK alone.
    initial: Initial,
    version: u32,
    /// A VERSION was followed; a second one is ignored.
    has_restarted: bool,
    ephemeral: P::Ephemeral,
    pub(crate) attempt: Attempt,
    address: AddressTrial,
    give_up_at: Instant,
    /// Addresses that refused: bit n is index n.
    refused: u8,
    evidence: Evidence,
}

/// A HELLO and its retransmissions, until a new key is drawn.
pub(crate) struct Attempt {
    hello: Vec<u8>,
    /// Replies echo it.
    pub(crate) hello_id: u64,
    resend_at: Instant,
    interval: Duration,
    /// When the HELLO was last sent, for the first RTT sample.
    sent_at: Instant,
    is_due: bool,
    /// RETRYs followed at this address.
    retries: u8,
    /// HELLOs sent.
    hellos: u8,
    agreements: u8,
    /// When the HELLO was first sent, after the first RETRY if there was one.
    asked_at: Option<Instant>,
}

struct AddressTrial {
    index: usize,
    next_at: Instant,
    began_at: Instant,
    /// Refusals without proof.
    unproved: u8,
    unproved_until: Instant,
}

#[derive(Default)]
struct Evidence {
    /// ACCEPTs that failed a check.
    rejected: u8,
    hint: Option<CloseCode>,
    /// The problem of the last certificate.
    certificate: Option<CertificateError>,
}

impl Attempt {
    const fn new(now: Instant, hello_id: u64, hello: Vec<u8>) -> Self {
        Self {
            hello,
            hello_id,
            resend_at: now,
            interval: RESEND_FIRST,
            sent_at: now,
            is_due: true,
            retries: 0,
            hellos: 0,
            agreements: 0,
            asked_at: None,
        }
    }
}

impl AddressTrial {
    fn new(now: Instant, index: usize) -> Self {
        Self {
            index,
            next_at: now + ADDRESS_SPAN,
            began_at: now,
            unproved: 0,
            unproved_until: now,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) now: Instant,
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
const ADDRESS_SPAN: Duration = Duration::from_millis(2_500);
/// Most RETRYs followed in one attempt, so that forged ones cannot prolong it.
const RETRIES_MAX: u8 = 3;
/// Most key agreements in one attempt; then a new key is drawn.
const AGREEMENTS_MAX: u8 = 16;
/// Refusals without proof that end the attempt at an address. Each echoes the random hello id: an
/// attacker that can forge that reads the client's packets.
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
            version: start.form.versions.best(),
            has_restarted: false,
            ephemeral,
            attempt: Attempt::new(now, 0, Vec::with_capacity(hello::LEN)),
            address: AddressTrial::new(now, 0),
            give_up_at: now + start.timeouts.connect,
            refused: 0,
            evidence: Evidence::default(),
        };
        dial.build_hello(now, provider, generator, key);
        Ok(dial)
    }

    /// Schedules the HELLO if a packet from the current address shows that the path works, at most
    /// once in [`RESEND_FIRST`], since such packets can be forged. Returns whether it did.
    pub(crate) fn on_packet_from(&mut self, now: Instant, from: SocketAddr) -> bool {
        let is_due = from == self.address()
            && self.attempt.hellos > 0
            && now >= self.attempt.sent_at + RESEND_FIRST;
        self.attempt.is_due |= is_due;
        is_due
    }

    /// Processes a RETRY: the same HELLO is sent again with the cookie.
    pub(crate) fn on_retry(&mut self, now: Instant, from: SocketAddr, retry: &Retry) -> bool {
        let is_ours = (retry.version, retry.hello_id) == (self.version, self.attempt.hello_id)
            && from == self.address();
        if !is_ours || self.attempt.retries >= RETRIES_MAX {
            return false;
        }
        if self.attempt.retries == 0 {
            self.attempt.asked_at = None;
        }
        self.attempt.retries = self.attempt.retries.saturating_add(1);
        hello::set_cookie(&mut self.attempt.hello, &retry.cookie);
        self.attempt.interval = RESEND_FIRST;
        self.attempt.resend_at = now;
        self.attempt.is_due = true;
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
        if (refuse.version, refuse.hello_id) != (self.version, self.attempt.hello_id) {
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
            self.evidence.hint = Some(code);
            self.on_unproved(now);
        }
        None
    }

    fn on_unproved(&mut self, now: Instant) {
        if self.address.unproved == 0 {
            let asked_at = self.attempt.asked_at.unwrap_or(self.attempt.sent_at);
            let round_trips = now.saturating_since(asked_at).saturating_mul(3);
            self.address.unproved_until = self.address.began_at + round_trips.max(UNPROVED_SPAN);
            // Do not wait for the next retransmission to get the second one.
            self.attempt.is_due = true;
        }
        self.address.unproved = self.address.unproved.saturating_add(1);
    }

    /// Returns whether refusals without proof ended the attempt at the current address.
    fn is_refused(&self, now: Instant) -> bool {
        self.address.unproved >= UNPROVED_MIN && now >= self.address.unproved_until
    }

    /// Moves to the next address that has not refused. Returns whether there is one.
    fn next_address(&mut self, now: Instant) -> bool {
        let count = self.target.addresses.len();
        let next = (1..=count)
            .filter_map(|step| self.address.index.saturating_add(step).checked_rem(count))
            .find(|index| self.refused & 1 << index == 0);
        let Some(next) = next else {
            return false;
        };
        self.address = AddressTrial::new(now, next);
        self.attempt.interval = RESEND_FIRST;
        self.attempt.retries = 0;
        self.attempt.asked_at = None;
        // A cookie is valid only at the server that issued it.
        hello::clear_cookie(&mut self.attempt.hello);
        self.attempt.resend_at = now;
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
        let is_answer = versions.hello_id == self.attempt.hello_id && from == self.address();
        if !is_answer || self.has_restarted || named.contains(&self.version) {
            return false;
        }
        let spoken = self.form.versions;
        let common = named.iter().filter(|version| spoken.contains(**version));
        let Some(version) = common.max() else {
            self.evidence.hint = Some(CloseCode::Version);
            self.on_unproved(now);
            return true;
        };
        let Ok((ephemeral, key)) = provider.ephemeral(Role::Dialler) else {
            return false;
        };
        self.version = *version;
        self.has_restarted = true;
        self.ephemeral = ephemeral;
        self.build_hello(now, provider, generator, key);
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
        let is_answer = (clear.version, clear.hello_id) == (self.version, self.attempt.hello_id)
            && self.may_reach(from);
        if !is_answer || !self.form.suites.contains(clear.suite) {
            return None;
        }
        let accepted = self.check_accept(clock, provider, (from, &clear), datagram);
        if accepted.is_none() {
            self.evidence.rejected = self.evidence.rejected.saturating_add(1);
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
        if self.attempt.agreements >= AGREEMENTS_MAX {
            match provider.ephemeral(Role::Dialler) {
                Ok((ephemeral, key)) => {
                    self.ephemeral = ephemeral;
                    self.build_hello(now, provider, generator, key);
                }
                Err(NoEntropy) => return Some(ConnectFailure::NoEntropy),
            }
        }
        if self.is_refused(now) {
            self.refused |= 1 << self.address.index;
            if !self.next_address(now) {
                return Some(self.failure());
            }
        } else if now >= self.address.next_at && self.target.addresses.len() > 1 {
            self.next_address(now);
        }
        if now >= self.attempt.resend_at {
            self.attempt.is_due = true;
            let jitter = generator.between(800, 1_200);
            let jitter = u32::try_from(jitter).unwrap_or(1_000);
            let wait = self.attempt.interval.saturating_mul(jitter);
            let wait = wait.checked_div(1_000).unwrap_or_default();
            self.attempt.resend_at = now + wait;
            let half = self.attempt.interval.checked_div(2).unwrap_or_default();
            self.attempt.interval = self.attempt.interval.saturating_add(half).min(RESEND_MAX);
        }
        None
    }

    pub(crate) fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<SocketAddr> {
        if !core::mem::take(&mut self.attempt.is_due) {
            return None;
        }
        self.attempt.sent_at = now;
        self.attempt.asked_at.get_or_insert(now);
        self.attempt.hellos = self.attempt.hellos.saturating_add(1);
        if self.attempt.resend_at <= now {
            self.attempt.resend_at = now + self.attempt.interval;
        }
        buf.extend_from_slice(&self.attempt.hello);
        Some(self.address())
    }

    pub(crate) fn poll_timeout(&self) -> Instant {
        let mut next = self.give_up_at.min(self.attempt.resend_at);
        if self.target.addresses.len() > 1 {
            next = next.min(self.address.next_at);
        }
        if self.address.unproved >= UNPROVED_MIN {
            next = next.min(self.address.unproved_until);
        }
        next
    }

    pub(crate) fn may_reach(&self, address: SocketAddr) -> bool {
        self.target.addresses.contains(&address)
    }

    pub(crate) const fn is_peer_mode(&self) -> bool {
        matches!(self.target.credentials, Credentials::Peer)
    }

    pub(crate) const fn failure(&self) -> ConnectFailure {
        if let Some(error) = self.evidence.certificate {
            return ConnectFailure::Certificate(error);
        }
        match (self.evidence.hint, self.evidence.rejected) {
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
        if self.attempt.agreements >= AGREEMENTS_MAX {
            return None;
        }
        self.attempt.agreements = self.attempt.agreements.saturating_add(1);
        if self.attempt.agreements == AGREEMENTS_MAX {
            self.attempt.resend_at = clock.now;
        }
        let shared = provider
            .agree(&mut self.ephemeral, &clear.server_ephemeral)
            .ok()?;
        let agreed = self.initial.agree(provider, &shared);
        let hello0 = Hello0::new(&self.attempt.hello)?;
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
        let context = VerifyContext {
            app_id: self.form.app_id,
            unix: clock.unix,
        };
        let server_key = match self.target.server.signer(provider, &accept, context) {
            Ok(key) => key,
            Err(VerifyError::Signature) => return None,
            Err(VerifyError::Certificate(error)) => {
                self.evidence.certificate = Some(error);
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
        matches!((self.attempt.hellos, self.attempt.retries), (1, 0) | (2, 1))
            .then(|| now.saturating_since(self.attempt.sent_at))
    }

    fn address(&self) -> SocketAddr {
        // `Target::check` ensured at least one, and `at` is reduced modulo their count.
        self.target
            .addresses
            .get(self.address.index)
            .copied()
            .unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)))
    }

    fn build_hello(
        &mut self,
        now: Instant,
        provider: &P,
        generator: &mut Generator,
        client_ephemeral: PublicKey,
    ) {
        let mut hello = core::mem::take(&mut self.attempt.hello);
        hello.clear();
        self.attempt = Attempt {
            sent_at: self.attempt.sent_at,
            ..Attempt::new(now, generator.next_u64(), hello)
        };
        let token = match &self.target.credentials {
            Credentials::Token { token, .. } => token.as_slice(),
            Credentials::Open | Credentials::Peer => &[],
        };
        Hello {
            version: self.version,
            version_max: self.form.versions.best(),
            app_id: self.form.app_id,
            hello_id: self.attempt.hello_id,
            suites: self.form.suites.bits(),
            client_cid: self.form.client_cid,
            client_ephemeral,
            cookie: None,
            psk_mac: [0; 16],
            token,
        }
        .encode(&mut self.attempt.hello);
        if matches!(self.target.credentials, Credentials::Open) {
            return;
        }
        let mac = Hello0::new(&self.attempt.hello)
            .map(|hello0| self.initial.hello_mac(provider, &hello0.mac_parts()));
        if let Some(mac) = mac {
            hello::set_psk_mac(&mut self.attempt.hello, &mac);
        }
    }
}

pub(crate) struct DialStart<'a> {
    pub(crate) target: Target,
    pub(crate) form: HelloForm,
    pub(crate) network: Option<&'a Secret32>,
    pub(crate) timeouts: Timeouts,
}
