//! The minimum work of any such encrypted protocol per packet or handshake.

use std::hint::black_box;

use crypto::{
    Identity, OpeningKey, Provider, Ring, Role, SealingKey, Secret32, Suite, TrafficSecret,
};
use udp_proto::packet::{Cid, Header, KeyPhase, PLAINTEXT_LEN_MIN, PacketNumber, TAG_LEN};
use udp_proto::replay::{ReplayWindow, Verdict};

type RingAead = <Ring as Provider>::Aead;

/// One direction of a session with keys, packet numbers and a replay window, without session
/// lookup, frames, acknowledgements, losses, timers or events.
pub struct BareDirection {
    sealing: SealingKey<RingAead>,
    opening: OpeningKey<RingAead>,
    window: ReplayWindow,
    destination: Cid,
    datagram: Vec<u8>,
}

/// Packets until the keys are replaced, well below a key's limit.
const RENEWED_AT: u64 = 1 << 22;

impl BareDirection {
    /// Creates a direction with AES-128-GCM and connection ids of 4 bytes.
    #[must_use]
    pub fn new() -> Self {
        let provider = Ring::new();
        let secret = || TrafficSecret::new(Secret32::new([7; 32]));
        Self {
            sealing: secret().into_sealing_key(&provider, Suite::Aes128Gcm),
            opening: secret().opening_key(&provider, Suite::Aes128Gcm),
            window: ReplayWindow::new(),
            destination: Cid::from_slice(&[1, 2, 3, 4]).expect("4 bytes"),
            datagram: Vec::new(),
        }
    }

    /// Sends one packet with `message` as its plaintext and receives it at the other end.
    pub fn pass(&mut self, message: &[u8]) {
        if self.sealing.next_number() >= RENEWED_AT {
            *self = Self::new();
        }
        self.send(message);
        self.take();
    }

    /// Writes the header and seals the plaintext.
    fn send(&mut self, message: &[u8]) {
        debug_assert!(
            message.len() >= PLAINTEXT_LEN_MIN,
            "shorter ones are padded"
        );
        let number = PacketNumber::new(self.sealing.next_number()).expect("few are used");
        let reference = self.window.largest().unwrap_or(PacketNumber::ZERO);
        let form = number.form_after(reference).expect("few are in flight");
        self.datagram.clear();
        Header {
            key_phase: KeyPhase::Even,
            destination: self.destination,
            number: number.truncate(form),
        }
        .encode(&mut self.datagram);
        let header_len = self.datagram.len();
        self.datagram.extend_from_slice(message);
        let end = self.datagram.len();
        self.datagram.resize(end + TAG_LEN, 0);
        let (rest, tag) = self.datagram.split_at_mut(end);
        let (header, body) = rest.split_at_mut(header_len);
        let tag = tag.first_chunk_mut().expect("as long as a tag");
        self.sealing
            .seal(header, body, tag)
            .expect("fewer than the 2^23 packets of a key");
    }

    /// Parses the header, checks for replay, opens, and marks the packet number.
    fn take(&mut self) {
        let header = Header::decode(&self.datagram, self.destination.len()).expect("our own");
        let number = self
            .window
            .expected(PacketNumber::ZERO)
            .widen(header.number);
        assert_eq!(self.window.check(number), Verdict::Fresh);
        let (clear, sealed) = self.datagram.split_at_mut(header.encoded_len());
        let (body, tag) = sealed.split_at_mut(sealed.len() - TAG_LEN);
        let tag = (&*tag).try_into().expect("as long as a tag");
        self.opening
            .open(number.get(), clear, body, tag)
            .expect("our own");
        self.window.mark(number);
        black_box(&*body);
    }
}

impl Default for BareDirection {
    fn default() -> Self {
        Self::new()
    }
}

impl core::fmt::Debug for BareDirection {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("BareDirection")
            .field("sealing", &self.sealing)
            .finish_non_exhaustive()
    }
}

/// The elliptic-curve operations of both ends in one handshake: two key pairs, two agreements, a
/// signature and its verification.
pub struct BareCurve {
    provider: Ring,
    identity: Identity,
    signing_key: <Ring as Provider>::SigningKey,
}

impl BareCurve {
    /// Generates an identity.
    #[must_use]
    pub fn new() -> Self {
        let mut provider = Ring::new();
        let identity = Identity::generate(&mut provider).expect("entropy");
        let signing_key = provider.signing_key(&identity).expect("entropy");
        Self {
            provider,
            identity,
            signing_key,
        }
    }

    /// Runs these operations once.
    pub fn shake_hands(&mut self) {
        let provider = &mut self.provider;
        let (mut client, client_key) = provider.ephemeral(Role::Dialler).expect("entropy");
        let (mut server, server_key) = provider.ephemeral(Role::Accepter).expect("entropy");
        let ours = provider.agree(&mut server, &client_key).expect("a point");
        let signature = provider
            .sign(&self.signing_key, &server_key.0)
            .expect("entropy");
        let theirs = provider.agree(&mut client, &server_key).expect("a point");
        assert!(crypto::equal(ours.expose(), theirs.expose()));
        assert!(provider.verify(self.identity.public_key(), &server_key.0, &signature));
    }
}

impl Default for BareCurve {
    fn default() -> Self {
        Self::new()
    }
}

impl core::fmt::Debug for BareCurve {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("BareCurve").finish_non_exhaustive()
    }
}

/// One SHA-256 over as many bytes as a HELLO has.
#[derive(Debug)]
pub struct BareHash {
    provider: Ring,
    bytes: [u8; udp_proto::handshake::hello::LEN],
}

impl BareHash {
    /// Creates the bytes.
    #[must_use]
    pub fn new() -> Self {
        Self {
            provider: Ring::new(),
            bytes: [0x5A; udp_proto::handshake::hello::LEN],
        }
    }

    /// Hashes them once.
    pub fn hash(&self) {
        black_box(self.provider.sha256(&[black_box(&self.bytes)]));
    }
}

impl Default for BareHash {
    fn default() -> Self {
        Self::new()
    }
}
