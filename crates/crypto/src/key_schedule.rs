//! The key schedule of TWP/1, as steps that can only be taken in order.
//!
//! ```text
//! Initial (S0)  --agree-->  Agreed (S1)  --traffic-->  SessionSecrets (from S2)
//!  hello mac, refuse mac     accept key                 client, server: TrafficSecret
//!                                                       exporter: Exporter
//! ```
//!
//! Both sides take the same steps; only which traffic secret they seal with differs. Nothing here
//! allocates, and each step wipes its secret when it is dropped.

use wire::codec::concat;
use zeroize::ZeroizeOnDrop;

use crate::{
    AcceptKey, Iv, OpeningKey, Provider, Role, SealingKey, Secret32, Suite, hkdf, packet_key,
};

/// Name of a key, so that no two uses of one secret give the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(&'static str);

impl Label {
    /// Names a key.
    ///
    /// # Panics
    ///
    /// If `name` is longer than 255 bytes; in a `const` this is a compile error.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        assert!(name.len() <= 255, "the length field of a label is one byte");
        Self(name)
    }
}

/// Expands `secret` to 32 bytes under `label` and `context`.
///
/// HKDF-Expand with info = `length u16 | label length u8 | label | context length u8 | context`.
/// A context over 255 bytes does not compile.
pub fn expand<P: Provider, const CONTEXT: usize>(
    provider: &P,
    secret: &Secret32,
    label: Label,
    context: &[u8; CONTEXT],
) -> Secret32 {
    expand_len(provider, secret, label, context, Secret32::LEN)
}

/// Expands `secret` to the key length of `suite`; the bytes behind it are zero.
pub fn expand_key<P: Provider, const CONTEXT: usize>(
    provider: &P,
    secret: &Secret32,
    label: Label,
    context: &[u8; CONTEXT],
    suite: Suite,
) -> Secret32 {
    expand_len(provider, secret, label, context, suite.key_len())
}

/// Expands `secret` to the 12 bytes that nonces are made from.
pub fn expand_iv<P: Provider, const CONTEXT: usize>(
    provider: &P,
    secret: &Secret32,
    label: Label,
    context: &[u8; CONTEXT],
) -> Iv {
    let bytes = expand_len(provider, secret, label, context, Iv::LEN);
    Iv::take(&mut concat(&[bytes.expose()]))
}

/// At most 32 bytes are one block of HKDF-Expand: one HMAC, and no copy of the info.
fn expand_len<P: Provider, const CONTEXT: usize>(
    provider: &P,
    secret: &Secret32,
    label: Label,
    context: &[u8; CONTEXT],
    len: usize,
) -> Secret32 {
    const { assert!(CONTEXT <= 255, "the length field of a context is one byte") };
    let [.., len_high, len_low] = len.to_be_bytes();
    let [.., label_len] = label.0.len().to_be_bytes();
    let [.., context_len] = CONTEXT.to_be_bytes();
    let mut block = provider.hmac_sha256(
        secret.expose(),
        &[
            &[len_high, len_low, label_len],
            label.0.as_bytes(),
            &[context_len],
            context,
            &[1],
        ],
    );
    block.iter_mut().skip(len).for_each(|byte| *byte = 0);
    Secret32::take(&mut block)
}

/// S0: what the pre-shared key alone gives, before any key agreement.
pub struct Initial(Secret32);

impl Initial {
    /// Starts from the pre-shared key. `None` is for open mode: the key is 32 zero bytes, and the
    /// MACs prove nothing.
    pub fn new<P: Provider>(provider: &P, psk: Option<&Secret32>) -> Self {
        let salt = provider.sha256(&[PROTOCOL]);
        let input = psk.map_or(&[0; 32], Secret32::expose);
        Self(hkdf::extract(provider, &salt, input))
    }

    /// Returns the MAC by which a HELLO proves the pre-shared key, over the concatenated parts.
    pub fn hello_mac<P: Provider>(&self, provider: &P, parts: &[&[u8]]) -> [u8; 16] {
        self.mac(provider, HELLO, parts)
    }

    /// Returns the MAC by which a REFUSE proves that the token was opened.
    pub fn refuse_mac<P: Provider>(&self, provider: &P, parts: &[&[u8]]) -> [u8; 16] {
        self.mac(provider, REFUSE, parts)
    }

    /// Mixes in the agreed secret; a dialler repeats this step for each received ACCEPT.
    pub fn agree<P: Provider>(&self, provider: &P, shared: &Secret32) -> Agreed {
        Agreed(derive(provider, &self.0, shared))
    }

    fn mac<P: Provider>(&self, provider: &P, label: Label, parts: &[&[u8]]) -> [u8; 16] {
        let key = expand(provider, &self.0, label, &[]);
        let mac = provider.hmac_sha256(key.expose(), parts);
        concat(&[&mac])
    }
}

/// S1: pre-shared key and key agreement.
pub struct Agreed(Secret32);

impl Agreed {
    /// Returns the key that seals the body of ACCEPT; `th0` is SHA-256 over HELLO with its cookie
    /// zero and the clear head of ACCEPT. Its nonce is fixed: an accepter derives it only once per
    /// `th0`.
    pub fn accept_key<P: Provider>(
        &self,
        provider: &P,
        suite: Suite,
        th0: &[u8; 32],
    ) -> AcceptKey<P::Aead> {
        let key = expand_key(provider, &self.0, ACCEPT_KEY, th0, suite);
        let iv = expand_iv(provider, &self.0, ACCEPT_IV, th0);
        AcceptKey::new(provider.aead(suite, &key), iv)
    }

    /// Ends the handshake; `th1` is SHA-256 over HELLO with its cookie zero and all of ACCEPT.
    pub fn traffic<P: Provider>(self, provider: &P, th1: &[u8; 32]) -> SessionSecrets {
        let s2 = derive(provider, &self.0, &Secret32::new([0; 32]));
        SessionSecrets {
            client: TrafficSecret(expand(provider, &s2, CLIENT_TRAFFIC, th1)),
            server: TrafficSecret(expand(provider, &s2, SERVER_TRAFFIC, th1)),
            exporter: Exporter(expand(provider, &s2, EXPORTER, th1)),
        }
    }
}

/// The secrets of a completed handshake.
#[derive(Debug)]
pub struct SessionSecrets {
    /// For packets of the client, which is the dialler.
    pub client: TrafficSecret,
    /// For packets of the server, which is the accepter.
    pub server: TrafficSecret,
    /// For keys of higher layers.
    pub exporter: Exporter,
}

impl SessionSecrets {
    /// Splits into the secret that `role` seals with, the one it opens with, and the exporter.
    #[must_use]
    pub fn split(self, role: Role) -> (TrafficSecret, TrafficSecret, Exporter) {
        match role {
            Role::Dialler => (self.client, self.server, self.exporter),
            Role::Accepter => (self.server, self.client, self.exporter),
        }
    }
}

/// `x_n`: the secret from which one direction's keys of phase n are expanded.
///
/// Not `Clone`: a second [`SealingKey`] from one secret would reuse every nonce.
pub struct TrafficSecret(Secret32);

impl TrafficSecret {
    /// Takes a secret from an [`Exporter`] as phase 0 of a direction of its own.
    #[must_use]
    pub const fn new(secret: Secret32) -> Self {
        Self(secret)
    }

    /// Derives the key of the sealing side, which numbers its packets from 0.
    pub fn into_sealing_key<P: Provider>(self, provider: &P, suite: Suite) -> SealingKey<P::Aead> {
        SealingKey::new(provider, suite, self, packet_key::Start::ZERO)
    }

    /// Like [`into_sealing_key`](Self::into_sealing_key), with a first number other than 0.
    pub fn into_sealing_key_from<P: Provider>(
        self,
        provider: &P,
        suite: Suite,
        first: u64,
    ) -> SealingKey<P::Aead> {
        SealingKey::new(provider, suite, self, packet_key::Start(first))
    }

    /// Derives the key that opens packets.
    pub fn opening_key<P: Provider>(&self, provider: &P, suite: Suite) -> OpeningKey<P::Aead> {
        let (aead, iv) = self.expand(provider, suite);
        OpeningKey::new(aead, iv)
    }

    /// Derives AEAD key and IV of this phase, for a caller that guarantees unique nonces itself.
    /// Packets use [`into_sealing_key`](Self::into_sealing_key).
    pub fn expand<P: Provider>(&self, provider: &P, suite: Suite) -> (P::Aead, Iv) {
        let key = expand_key(provider, &self.0, KEY, &[], suite);
        let iv = expand_iv(provider, &self.0, IV, &[]);
        (provider.aead(suite, &key), iv)
    }

    /// Returns the secret of the next phase, from which this one cannot be computed.
    #[must_use]
    pub fn next<P: Provider>(&self, provider: &P) -> Self {
        Self(expand(provider, &self.0, UPDATE, &[]))
    }
}

/// Derives keys for layers above a session, such as the links and flows of a mesh.
pub struct Exporter(Secret32);

impl Exporter {
    /// Derives the key of a label and context, which is equal at both ends.
    pub fn expand<P: Provider, const CONTEXT: usize>(
        &self,
        provider: &P,
        label: Label,
        context: &[u8; CONTEXT],
    ) -> Secret32 {
        expand(provider, &self.0, label, context)
    }

    /// Derives the exporter of one part, which reveals nothing about the others.
    #[must_use]
    pub fn branch<P: Provider, const CONTEXT: usize>(
        &self,
        provider: &P,
        label: Label,
        context: &[u8; CONTEXT],
    ) -> Self {
        Self(self.expand(provider, label, context))
    }
}

wire::opaque_debug!(Initial, Agreed, TrafficSecret, Exporter);

/// Each holds a [`Secret32`], which wipes itself.
impl ZeroizeOnDrop for Initial {}
impl ZeroizeOnDrop for Agreed {}
impl ZeroizeOnDrop for TrafficSecret {}
impl ZeroizeOnDrop for Exporter {}

/// One step down: Extract with a salt derived from the secret above.
fn derive<P: Provider>(provider: &P, secret: &Secret32, input: &Secret32) -> Secret32 {
    let salt = expand(provider, secret, DERIVED, &[]);
    hkdf::extract(provider, salt.expose(), input.expose())
}

/// Its hash salts the first Extract.
const PROTOCOL: &[u8] = b"tickwire udp 1";

const DERIVED: Label = Label::new("tw1 derived");
const HELLO: Label = Label::new("tw1 hello");
const REFUSE: Label = Label::new("tw1 refuse");
const ACCEPT_KEY: Label = Label::new("tw1 accept key");
const ACCEPT_IV: Label = Label::new("tw1 accept iv");
const CLIENT_TRAFFIC: Label = Label::new("tw1 c traffic");
const SERVER_TRAFFIC: Label = Label::new("tw1 s traffic");
const EXPORTER: Label = Label::new("tw1 exporter");
const KEY: Label = Label::new("tw1 key");
const IV: Label = Label::new("tw1 iv");
const UPDATE: Label = Label::new("tw1 update");
