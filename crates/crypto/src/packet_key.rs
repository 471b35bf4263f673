//! Keys that seal and open packets, and never reuse a nonce.

use alloc::boxed::Box;

use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::{Aead, OpenError, Provider, Suite, TrafficSecret};

/// Seals the packets of one direction, over all its key phases.
///
/// Takes no nonce and is not `Clone`: each seal uses up the next number of one counter, which
/// starts with the direction and is not set back by [`update`](Self::update), so no two seals of
/// a direction share key and nonce. nonce = iv XOR (4 zero bytes, number as 8 bytes big-endian).
///
/// ```compile_fail
/// fn twice<A: crypto::Aead>(key: &crypto::SealingKey<A>) -> crypto::SealingKey<A> {
///     key.clone()
/// }
/// ```
pub struct SealingKey<A> {
    /// Expanded key of the current phase; `None` after [`SealingKey::drop_expanded`].
    expanded: Option<Box<Expanded<A>>>,
    /// Of the present phase, and what the next one is made from.
    secret: TrafficSecret,
    suite: Suite,
    /// Number of the next seal; never decreases.
    next: u64,
    /// Seals under the current phase.
    sealed: u64,
}

/// What a secret is expanded to, ready for use: some half a kilobyte, where a secret has 32 bytes.
struct Expanded<A> {
    aead: A,
    iv: Iv,
}

impl<A: Aead> Expanded<A> {
    fn of<P: Provider<Aead = A>>(secret: &TrafficSecret, provider: &P, suite: Suite) -> Self {
        let (aead, iv) = secret.expand(provider, suite);
        Self { aead, iv }
    }
}

impl<A: Aead> SealingKey<A> {
    pub(crate) fn new<P: Provider<Aead = A>>(
        provider: &P,
        suite: Suite,
        secret: TrafficSecret,
        Start(next): Start,
    ) -> Self {
        Self {
            expanded: Some(Box::new(Expanded::of(&secret, provider, suite))),
            secret,
            suite,
            next,
            sealed: 0,
        }
    }

    /// Encrypts `inout` in place, writes its tag, and returns the number it used.
    ///
    /// `aad` holds that number: get it from [`next_number`](Self::next_number) first.
    ///
    /// # Errors
    ///
    /// [`SealError`] if the numbers or the key are used up, or the key is not
    /// expanded; `inout` is unchanged.
    pub fn seal(
        &mut self,
        aad: &[u8],
        inout: &mut [u8],
        tag: &mut [u8; 16],
    ) -> Result<u64, SealError> {
        if self.sealed >= SEALS_MAX {
            return Err(SealError::KeyExhausted);
        }
        let number = self.next;
        let next = Self::after(number).ok_or(SealError::NumbersUsedUp)?;
        let key = self.expanded.as_ref().ok_or(SealError::KeyNotExpanded)?;
        self.next = next;
        self.sealed = self.sealed.saturating_add(1);
        key.aead.seal(key.iv.nonce(number), aad, inout, tag);
        Ok(number)
    }

    /// Drops the expanded key to save memory while the direction is idle. Secret, numbers and counts
    /// stay.
    pub fn drop_expanded(&mut self) {
        self.expanded = None;
    }

    /// Expands the key if it was dropped: two HMACs and a key schedule.
    pub fn expand_key<P: Provider<Aead = A>>(&mut self, provider: &P) {
        if self.expanded.is_none() {
            let expanded = Expanded::of(&self.secret, provider, self.suite);
            self.expanded = Some(Box::new(expanded));
        }
    }

    /// Returns the heap memory it holds, bytes.
    pub const fn memory(&self) -> usize {
        if self.expanded.is_some() {
            size_of::<Expanded<A>>()
        } else {
            0
        }
    }

    /// Skips one number. A peer that acknowledges it is detected as dishonest.
    ///
    /// # Errors
    ///
    /// [`SealError::NumbersUsedUp`] if no number is left.
    pub fn skip(&mut self) -> Result<u64, SealError> {
        let number = self.next;
        self.next = Self::after(number).ok_or(SealError::NumbersUsedUp)?;
        Ok(number)
    }

    /// Advances to the next key phase: wipes the old key and continues the numbers. A key that is
    /// not expanded stays so.
    pub fn update<P: Provider<Aead = A>>(&mut self, provider: &P) {
        self.secret = self.secret.next(provider);
        if let Some(expanded) = &mut self.expanded {
            **expanded = Expanded::of(&self.secret, provider, self.suite);
        }
        self.sealed = 0;
    }

    /// Returns the number that the next seal or skip uses.
    pub const fn next_number(&self) -> u64 {
        self.next
    }

    /// Returns how many packets the current phase has sealed.
    pub const fn sealed_in_phase(&self) -> u64 {
        self.sealed
    }

    /// Returns the number after `number`, or `None` at the maximum.
    const fn after(number: u64) -> Option<u64> {
        if number < NUMBERS_MAX {
            number.checked_add(1)
        } else {
            None
        }
    }
}

/// Opens the packets of one direction and one key phase.
pub struct OpeningKey<A> {
    aead: A,
    iv: Iv,
}

impl<A: Aead> OpeningKey<A> {
    pub(crate) const fn new(aead: A, iv: Iv) -> Self {
        Self { aead, iv }
    }

    /// Decrypts `inout` in place. The caller must reject replays before this call.
    ///
    /// # Errors
    ///
    /// [`OpenError`] if anything was changed or the number differs; `inout` is then garbage.
    pub fn open(
        &self,
        number: u64,
        aad: &[u8],
        inout: &mut [u8],
        tag: &[u8; 16],
    ) -> Result<(), OpenError> {
        self.aead.open(self.iv.nonce(number), aad, inout, tag)
    }
}

/// Seals or opens the body of one ACCEPT. Either use consumes it, because its nonce is fixed.
pub struct AcceptKey<A> {
    aead: A,
    iv: Iv,
}

impl<A: Aead> AcceptKey<A> {
    pub(crate) const fn new(aead: A, iv: Iv) -> Self {
        Self { aead, iv }
    }

    /// Encrypts `inout` in place and writes its tag.
    pub fn seal(self, aad: &[u8], inout: &mut [u8], tag: &mut [u8; 16]) {
        self.aead.seal(self.iv.nonce(0), aad, inout, tag);
    }

    /// Decrypts `inout` in place.
    ///
    /// # Errors
    ///
    /// [`OpenError`] if anything was changed; `inout` is then garbage.
    pub fn open(self, aad: &[u8], inout: &mut [u8], tag: &[u8; 16]) -> Result<(), OpenError> {
        self.aead.open(self.iv.nonce(0), aad, inout, tag)
    }
}

/// 12 secret bytes that nonces are made from; wiped on drop.
pub struct Iv([u8; Self::LEN]);

impl Iv {
    /// Length in bytes.
    pub const LEN: usize = 12;

    /// Moves the bytes in and wipes the source.
    pub fn take(bytes: &mut [u8; Self::LEN]) -> Self {
        let iv = Self(*bytes);
        bytes.zeroize();
        iv
    }

    /// Returns the nonce of packet `number`.
    #[must_use]
    pub fn nonce(&self, number: u64) -> [u8; 12] {
        let [_, _, _, _, mask @ ..] = u128::from(number).to_be_bytes();
        self.xor(mask)
    }

    /// Returns iv XOR `mask`, for a caller with another nonce scheme.
    #[must_use]
    pub fn xor(&self, mask: [u8; 12]) -> [u8; 12] {
        let mut nonce = self.0;
        for (byte, mask) in nonce.iter_mut().zip(mask) {
            *byte ^= mask;
        }
        nonce
    }
}

impl Drop for Iv {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl ZeroizeOnDrop for Iv {}

wire::opaque_debug!(Iv, OpeningKey<A>, AcceptKey<A>);

wire::debug_fields!([A] SealingKey<A>, this {
    suite: this.suite,
    next: this.next,
    sealed: this.sealed,
});

/// Why nothing was sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SealError {
    /// This direction has used its 2^62 numbers; the session must end.
    NumbersUsedUp,
    /// This key phase has sealed 2^23 packets; [`SealingKey::update`], or end the session.
    KeyExhausted,
    /// The expanded key was dropped; call [`SealingKey::expand_key`] first.
    KeyNotExpanded,
}

wire::error_text! { SealError {
    Self::NumbersUsedUp => "all 2^62 packet numbers are used up",
    Self::KeyExhausted => "the key has sealed its 2^23 packets",
    Self::KeyNotExpanded => "the key is not expanded",
}}

/// First number of a direction.
pub(crate) struct Start(pub(crate) u64);

impl Start {
    pub(crate) const ZERO: Self = Self(0);
}

/// Packet numbers per direction: below 2^62, as in RFC 9000, section 12.3.
pub const NUMBERS_MAX: u64 = 1 << 62;

/// Maximum seals under one key: RFC 9001, section 6.6 and appendix B.1, for AES-GCM with short
/// packets.
pub const SEALS_MAX: u64 = 1 << 23;
