//! The handshake: HELLO, RETRY, ACCEPT, CONFIRM.
//!
//! One module for each datagram ([`hello`], [`accept`], [`reply`]) and for each side's state
//! (`dial`, `half_open`). `endpoint::admission` holds the order of a server's checks.

pub mod accept;
pub(crate) mod dial;
pub(crate) mod half_open;
pub mod hello;
pub mod params;
pub mod reply;
pub mod reset;
pub(crate) mod target;

use crypto::{NoEntropy, Provider, PublicKey};
use wire::codec::concat;
use wire::{NodeId, Reader, Truncated, Writer};

use crate::config::{VERSION_1, VERSION_TRIAL};
use crate::packet::Cid;
use hello::Hello0;

/// How a client authenticates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// With a connect token and its PSK.
    Token,
    /// It does not.
    Open,
    /// With the network secret and its identity key.
    Peer,
}

/// Returns th0, which binds the key of ACCEPT's sealed part: SHA-256 over HELLO0 and the clear
/// part.
pub(crate) fn transcript_0<P: Provider>(
    provider: &P,
    hello: &Hello0<'_>,
    clear: &[u8],
) -> [u8; 32] {
    let [a, b, c] = hello.parts();
    provider.sha256(&[a, b, c, clear])
}

/// Returns th1, which binds all session keys: SHA-256 over HELLO0 and the encoded ACCEPT.
pub(crate) fn transcript_1<P: Provider>(
    provider: &P,
    hello: &Hello0<'_>,
    accept: &[u8],
) -> [u8; 32] {
    transcript_0(provider, hello, accept)
}

/// Length of CONFIRM's body: parameters and channel digest.
pub(crate) const CONFIRM_LEN: usize = params::LEN + 16;
pub(crate) const IDENTITY_LEN: usize = 65 + 64;

const LABEL: &[u8] = b"tw1 peer identity";

#[derive(Clone, Copy, Debug)]
pub(crate) struct IdentityClaim<'a> {
    pub(crate) th1: &'a [u8; 32],
    pub(crate) dialler: NodeId,
    pub(crate) accepter: NodeId,
    pub(crate) confirm: &'a [u8; CONFIRM_LEN],
}

impl IdentityClaim<'_> {
    pub(crate) fn sign<P: Provider>(
        &self,
        provider: &mut P,
        key: &P::SigningKey,
        public: &PublicKey,
    ) -> Result<[u8; IDENTITY_LEN], NoEntropy> {
        let signature = provider.sign(key, &self.message())?;
        Ok(concat(&[&public.0, &signature]))
    }

    pub(crate) fn verify<P: Provider>(
        &self,
        provider: &P,
        public: &PublicKey,
        signature: &[u8; 64],
    ) -> bool {
        provider.verify(public, &self.message(), signature)
    }

    fn message(&self) -> [u8; 169] {
        concat(&[
            LABEL,
            self.th1,
            &self.dialler.0,
            &self.accepter.0,
            self.confirm,
        ])
    }
}

const _: () = assert!(LABEL.len() + 32 + 32 + 32 + CONFIRM_LEN == 169);

pub(crate) const fn is_known(version: u32) -> bool {
    matches!(version, VERSION_1 | VERSION_TRIAL)
}

/// A datagram or a field of the handshake is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl From<Truncated> for Malformed {
    fn from(_: Truncated) -> Self {
        Self
    }
}

/// Appends the length of a connection id and the id, padded to 8 bytes.
fn write_cid(writer: &mut Writer<'_>, cid: Cid) {
    writer.u8(u8::try_from(cid.len()).unwrap_or(0));
    writer.bytes(cid.padded());
}

/// Reads a connection id as [`write_cid`] writes it; `None` if length or padding is wrong.
fn read_cid(reader: &mut Reader<'_>) -> Result<Option<Cid>, Truncated> {
    let (len, padded) = (reader.u8()?, reader.array()?);
    let cid = padded.get(..usize::from(len)).and_then(Cid::from_slice);
    Ok(cid.filter(|cid| *cid.padded() == padded))
}
