//! IDENTITY: proof of the dialling node's key in peer mode.
//!
//! `public key 65 | signature 64`; the signature covers "tw1 peer identity", th1, both node ids and
//! the body of CONFIRM.

use crypto::{NoEntropy, Provider, PublicKey};
use wire::NodeId;

use super::params;

/// Length of CONFIRM's body: parameters and channel digest.
pub(crate) const CONFIRM_LEN: usize = params::LEN + 16;
/// Length of IDENTITY's body.
pub(crate) const IDENTITY_LEN: usize = 65 + 64;

const LABEL: &[u8] = b"tw1 peer identity";

/// What an IDENTITY signs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdentityClaim<'a> {
    pub(crate) th1: &'a [u8; 32],
    pub(crate) dialler: NodeId,
    pub(crate) accepter: NodeId,
    pub(crate) confirm: &'a [u8; CONFIRM_LEN],
}

impl IdentityClaim<'_> {
    /// Returns the body of an IDENTITY frame.
    pub(crate) fn sign<P: Provider>(
        &self,
        provider: &mut P,
        key: &P::SigningKey,
        public: &PublicKey,
    ) -> Result<[u8; IDENTITY_LEN], NoEntropy> {
        let signature = provider.sign(key, &self.message())?;
        let mut body = [0; IDENTITY_LEN];
        let (head, tail) = body.split_at_mut(65);
        head.copy_from_slice(&public.0);
        tail.copy_from_slice(&signature);
        Ok(body)
    }

    /// Returns whether `signature` by `public` covers this claim.
    pub(crate) fn verify<P: Provider>(
        &self,
        provider: &P,
        public: &PublicKey,
        signature: &[u8; 64],
    ) -> bool {
        provider.verify(public, &self.message(), signature)
    }

    fn message(&self) -> [u8; 169] {
        let mut message = [0; 169];
        let parts: [&[u8]; 5] = [
            LABEL,
            self.th1,
            &self.dialler.0,
            &self.accepter.0,
            self.confirm,
        ];
        for (to, from) in message.iter_mut().zip(parts.iter().copied().flatten()) {
            *to = *from;
        }
        message
    }
}

const _: () = assert!(LABEL.len() + 32 + 32 + 32 + CONFIRM_LEN == 169);
