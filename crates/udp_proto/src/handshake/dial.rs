//! The client's side of a handshake: one attempt after another, until a session or the end.

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
use super::trust::{Moment, SignedAccept, VerifyError};
use super::{SpokenVersions, transcript_0, transcript_1};
use crate::error::{CloseCode, ConnectFailure};
use crate::packet::Cid;
use crate::timeouts::Timeouts;

/// A dialling client.
pub(crate) struct Dial<P: Provider> {
    target: Target,
    /// What goes into each HELLO besides the key.
    form: HelloForm,
    /// The times of the session to be.
    timeouts: Timeouts,
    /// Keys from the PSK alone.
    initial: Initial,
    /// The HELLO of the attempt at hand.
    hello: Vec<u8>,
    hello_id: u64,
    /// The version of this attempt.
    version: u32,
    /// A VERSION was followed; another one is not.
    has_restarted: bool,
    ephemeral: P::Ephemeral,
    /// Index into the addresses.
    at: usize,
    /// When the address gives way to the next.
    next_address_at: Instant,
    /// When the HELLO is sent again.
    resend_at: Instant,
    interval: Duration,
    /// When all is given up.
    give_up_at: Instant,
    /// When the last HELLO left, for the first RTT sample.
    sent_at: Instant,
    /// Whether the HELLO waits to be sent.
    is_due: bool,
    /// RETRYs followed in this attempt, at this address.
    retries: u8,
    /// HELLOs of this attempt that left.
    hellos: u8,
    /// Key agreements in this attempt.
    agreements: u8,
    /// ACCEPTs that failed a check, over all attempts.
    rejected: u8,
    /// What an unproven REFUSE said.
    hint: Option<CloseCode>,
    /// When the address at hand was begun with.
    began_at: Instant,
    /// When the HELLO left first, since the first RETRY where one came.
    asked_at: Option<Instant>,
    /// Refusals without proof, from the address at hand.
    unproved: u8,
    /// When these end the attempt there.
    unproved_until: Instant,
    /// Addresses that have refused: bit n is index n.
    refused: u8,
    /// What was wrong with the last certificate.
    certificate: Option<CertificateError>,
}

/// Both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) now: Instant,
    /// The wall clock, where it was told.
    pub(crate) unix: Option<UnixTime>,
}

/// What every HELLO of one dial has in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HelloForm {
    pub(crate) app_id: u64,
    pub(crate) versions: SpokenVersions,
    pub(crate) suites: SuiteSet,
    pub(crate) client_cid: Cid,
}

/// What a good ACCEPT gives.
pub(crate) struct Accepted {
    /// Where it came from, and packets go to.
    pub(crate) server: SocketAddr,
    pub(crate) server_cid: Cid,
    pub(crate) server_key: PublicKey,
    pub(crate) suite: Suite,
    pub(crate) secrets: SessionSecrets,
    pub(crate) params: Params,
    /// Transcript hash, which an IDENTITY frame signs.
    pub(crate) th1: [u8; 32],
    /// From the HELLO to the ACCEPT, where it is certain which HELLO that was.
    pub(crate) round_trip: Option<Duration>,
}

/// First wait before a HELLO is sent again; each further one is half as long again. TWP/1, 11.
const RESEND_FIRST: Duration = Duration::from_millis(250);
/// Longest wait before a HELLO is sent again.
const RESEND_MAX: Duration = Duration::from_secs(1);
/// How long one address is tried.
const ADDRESS_SPAN: Duration = Duration::from_millis(2_500);
/// Most RETRYs followed in one attempt: a forged one cannot end it.
const RETRIES_MAX: u8 = 3;
/// Most key agreements in one attempt; then a new key is drawn.
const AGREEMENTS_MAX: u8 = 16;
/// Refusals without proof that end the attempt at an address.
///
/// Each echoes the hello id, which is random, and comes from the address that was dialled: whoever
/// forges them reads what the client sends, and mostly could as well drop it.
const UNPROVED_MIN: u8 = 2;
/// How long, from the first HELLO to an address, a genuine ACCEPT may come behind refusals without
/// proof, at least; else three round trips.
const UNPROVED_SPAN: Duration = Duration::from_secs(1);

impl<P: Provider> Dial<P> {
    /// Draws a key and lays out the first HELLO. The target has been checked.
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

    /// Returns the times of the session to be.
    pub(crate) const fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    /// Returns the connection id of the session to be that its peer will use.
    pub(crate) const fn client_cid(&self) -> Cid {
        self.form.client_cid
    }

    /// Marks the HELLO as due if a packet from the address at hand shows that its path works, at most once in
    /// [`RESEND_FIRST`], since such packets can be forged. Returns whether it is due by that.
    pub(crate) fn on_packet_from(&mut self, now: Instant, from: SocketAddr) -> bool {
        let is_due =
            from == self.address() && self.hellos > 0 && now >= self.sent_at + RESEND_FIRST;
        self.is_due |= is_due;
        is_due
    }

    /// Takes a RETRY: the same HELLO goes out again with the cookie in it.
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

    /// Takes a REFUSE; one whose mac proves that the token was opened ends the attempt. Several others
    /// end it in [`handle_timeout`](Self::handle_timeout), where no ACCEPT comes meanwhile.
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

    /// Takes note that the address at hand has refused, or somebody in its name.
    fn on_unproved(&mut self, now: Instant) {
        if self.unproved == 0 {
            let asked_at = self.asked_at.unwrap_or(self.sent_at);
            let round_trips = now.saturating_since(asked_at).saturating_mul(3);
            self.unproved_until = self.began_at + round_trips.max(UNPROVED_SPAN);
            // The second one should not wait for the next repeat.
            self.is_due = true;
        }
        self.unproved = self.unproved.saturating_add(1);
    }

    /// Returns whether refusals without proof have ended the attempt at the address at hand.
    fn is_refused(&self, now: Instant) -> bool {
        self.unproved >= UNPROVED_MIN && now >= self.unproved_until
    }

    /// Goes on with the next address that has not refused; returns whether there is one.
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
        // A cookie is good only at the server that made it.
        hello::clear_cookie(&mut self.hello);
        self.resend_at = now;
        true
    }

    /// Takes a VERSION: a new attempt begins, once, with the highest version that both speak. One that
    /// names the version of our HELLO contradicts itself. A forged one ends in no session of a lower
    /// version: a server that speaks a higher one than it is asked for refuses, and that ends the
    /// attempt. Where there is no common version the attempt goes on.
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

    /// Takes an ACCEPT; `None` where it fails any check, and then the attempt goes on with the
    /// same key.
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

    /// Runs what is due; an end is returned once.
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

    /// Appends the HELLO where it is due.
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

    /// Returns when `handle_timeout` is next needed.
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

    /// Returns whether our own identity is to be shown.
    pub(crate) const fn is_peer_mode(&self) -> bool {
        matches!(self.target.credentials, Credentials::Peer)
    }

    /// Returns how the end looks from what has come.
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

    /// Returns the time since the HELLO that an ACCEPT answers: the only one, or the one behind the
    /// only RETRY. A HELLO sent again leaves it open which of them was answered (P. Karn, C.
    /// Partridge, "Improving Round-Trip Time Estimates in Reliable Transport Protocols", 1987).
    fn round_trip(&self, now: Instant) -> Option<Duration> {
        matches!((self.hellos, self.retries), (1, 0) | (2, 1))
            .then(|| now.saturating_since(self.sent_at))
    }

    fn address(&self) -> SocketAddr {
        // `Target::check` has seen one at least, and `at` is reduced by their count.
        self.target
            .addresses
            .get(self.at)
            .copied()
            .unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)))
    }

    /// Writes the HELLO of a new attempt.
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

/// What a dial begins with.
pub(crate) struct DialStart<'a> {
    pub(crate) target: Target,
    pub(crate) form: HelloForm,
    /// The PSK of peer mode.
    pub(crate) network: Option<&'a Secret32>,
    pub(crate) timeouts: Timeouts,
}
