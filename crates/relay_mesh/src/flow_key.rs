//! End-to-end sealing between entry and exit: a packet is sealed once for all paths.

use core::time::Duration;

use crypto::{Aead, Exporter, Label, Provider, SEALS_MAX, SealingKey, Suite, TrafficSecret};
use udp_proto::packet::PacketNumber;
use udp_proto::replay::{ReplayWindow, Verdict};
use wire::Instant;

use crate::hop::{HopHeader, NUMBERS_MAX, Phase, Piece};
use crate::key_ring::{KeyRing, Sealed};

/// Names a flow between one entry and one exit; never reused within their session.
///
/// The session's dialer uses odd ids, its accepter even ones; 0 is for probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub u64);

impl FlowId {
    /// The flow of path probes and reports, which has its own keys.
    pub const PROBE: Self = Self(0);

    fn secret<P: Provider>(
        self,
        provider: &P,
        exporter: &Exporter,
        direction: u8,
    ) -> TrafficSecret {
        let secret = if self == Self::PROBE {
            exporter.expand(provider, PROBE, &[direction])
        } else {
            let mut context = [direction; 9];
            for (to, from) in context.iter_mut().zip(self.0.to_be_bytes()) {
                *to = from;
            }
            exporter.expand(provider, FLOW, &context)
        };
        TrafficSecret::new(secret)
    }
}

/// Seals one direction of a flow.
pub struct FlowSealer<A> {
    flow: FlowId,
    key: SealingKey<A>,
    /// Key phase mod 64.
    phase: u8,
    /// When the current key was first used.
    since: Option<Instant>,
}

/// Number and phase that [`FlowSealer::seal`] assigned to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbered {
    /// Its number in flow and direction.
    pub number: u64,
    /// The phase byte, equal on every path.
    pub phase: Phase,
}

impl<A: Aead> FlowSealer<A> {
    /// Creates the sealer of `direction`: 0 for packets of the session's dialer, 1 for those of its
    /// accepter.
    pub fn new<P: Provider<Aead = A>>(
        provider: &P,
        exporter: &Exporter,
        flow: FlowId,
        direction: u8,
    ) -> Self {
        let secret = flow.secret(provider, exporter, direction);
        Self {
            flow,
            key: secret.into_sealing_key(provider, SUITE),
            phase: 0,
            since: None,
        }
    }

    /// Appends `payload`, sealed, and its tag to `out`.
    ///
    /// # Errors
    /// [`AeadLimitReached`] if the flow's numbers are used up; nothing is appended.
    pub fn seal<P: Provider<Aead = A>>(
        &mut self,
        provider: &P,
        now: Instant,
        (piece, payload): (Piece, &[u8]),
        out: &mut Vec<u8>,
    ) -> Result<Numbered, AeadLimitReached> {
        if self.is_due(now) {
            self.key.update(provider);
            self.phase = self.phase.wrapping_add(1) % PHASES;
            self.since = None;
        }
        let number = self.key.next_number();
        if number >= NUMBERS_MAX {
            return Err(AeadLimitReached);
        }
        let phase = Phase {
            key: self.phase,
            piece,
        };
        let start = out.len();
        out.extend_from_slice(payload);
        let mut tag = [0; TAG_LEN];
        let aad = aad(self.flow, phase, number);
        let body = out.get_mut(start..).unwrap_or_default();
        if self.key.seal(&aad, body, &mut tag).is_err() {
            out.truncate(start);
            return Err(AeadLimitReached);
        }
        self.since.get_or_insert(now);
        out.extend_from_slice(&tag);
        Ok(Numbered { number, phase })
    }

    fn is_due(&self, now: Instant) -> bool {
        let is_old = |since| now.saturating_since(since) >= UPDATE_SPAN;
        self.key.sealed_in_phase() >= UPDATE_SEALS || self.since.is_some_and(is_old)
    }
}

/// Opens one direction of a flow, over all its paths.
///
/// Only packets that decrypt mark its window, so relays cannot use it up; copies count once.
pub struct FlowOpener<A> {
    flow: FlowId,
    keys: KeyRing<A>,
    window: ReplayWindow,
}

impl<A: Aead> FlowOpener<A> {
    /// Creates the opener of `direction`, the sending end's number.
    pub fn new<P: Provider<Aead = A>>(
        provider: &P,
        exporter: &Exporter,
        flow: FlowId,
        direction: u8,
    ) -> Self {
        let secret = flow.secret(provider, exporter, direction);
        Self {
            flow,
            keys: KeyRing::new(provider, SUITE, secret, PHASES),
            window: ReplayWindow::new(),
        }
    }

    /// Decrypts the body of a frame in place and returns the payload.
    ///
    /// # Errors
    /// [`FlowDrop`]; the body is garbage if it was forged.
    pub fn open<'a, P: Provider<Aead = A>>(
        &mut self,
        provider: &P,
        now: Instant,
        header: &HopHeader,
        body: &'a mut [u8],
    ) -> Result<&'a mut [u8], FlowDrop> {
        let number = PacketNumber::new(header.number).ok_or(FlowDrop::Forged)?;
        if self.window.check(number) != Verdict::Fresh {
            return Err(FlowDrop::Duplicate);
        }
        let payload = self.open_body(provider, now, header, body)?;
        self.window.mark(number);
        Ok(payload)
    }

    fn open_body<'a, P: Provider<Aead = A>>(
        &mut self,
        provider: &P,
        now: Instant,
        header: &HopHeader,
        body: &'a mut [u8],
    ) -> Result<&'a mut [u8], FlowDrop> {
        let split = body.split_last_chunk_mut::<TAG_LEN>();
        let (payload, tag) = split.ok_or(FlowDrop::Forged)?;
        let [_, _, _, _, mask @ ..] = u128::from(header.number).to_be_bytes();
        let sealed = Sealed {
            phase: header.phase.key,
            mask,
            aad: &aad(self.flow, header.phase, header.number),
            body: payload,
            tag,
        };
        self.keys
            .open(provider, now, sealed)
            .map_err(|_| FlowDrop::Forged)?;
        Ok(payload)
    }

    /// Returns whether the body is a copy of a packet of the flow; decrypts it in place.
    pub fn verify<P: Provider<Aead = A>>(
        &mut self,
        provider: &P,
        now: Instant,
        header: &HopHeader,
        body: &mut [u8],
    ) -> bool {
        self.open_body(provider, now, header, body).is_ok()
    }

    /// Returns the largest number that was decrypted.
    pub fn largest(&self) -> Option<u64> {
        self.window.largest().map(PacketNumber::get)
    }
}

/// Why a packet is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowDrop {
    /// A duplicate, or too old to tell.
    Duplicate,
    /// It was modified, or belongs to another flow.
    Forged,
}

/// A direction has used up its packet numbers, so the flow ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AeadLimitReached;

wire::error_text! { AeadLimitReached {
    Self => "the packet numbers of the flow are used up",
}}

wire::debug_fields!([A] FlowSealer<A>, this { flow: this.flow, phase: this.phase });

wire::debug_fields!([A] FlowOpener<A>, this { flow: this.flow });

/// `flow 8 | phase 1 | number 8`, independent of the path.
fn aad(FlowId(flow): FlowId, phase: Phase, number: u64) -> [u8; 17] {
    let mut aad = [0; 17];
    let fields = flow
        .to_be_bytes()
        .into_iter()
        .chain([phase.to_byte()])
        .chain(number.to_be_bytes());
    for (to, from) in aad.iter_mut().zip(fields) {
        *to = from;
    }
    aad
}

/// Length of the end-to-end tag, last in a frame.
pub(crate) const TAG_LEN: usize = 16;
const SUITE: Suite = Suite::Aes128Gcm;
/// Key phases that the header distinguishes.
const PHASES: u8 = 64;
/// Packets and time per key; TWP/1, section 4.1.
const UPDATE_SEALS: u64 = 1 << 20;
const UPDATE_SPAN: Duration = Duration::from_secs(15 * 60);
const _: () = assert!(
    UPDATE_SEALS < SEALS_MAX,
    "the key is changed before its limit"
);

const FLOW: Label = Label::new("tw1 flow");
const PROBE: Label = Label::new("tw1 probe");

#[cfg(test)]
mod tests;
