//! Admins and documents for tests.

use crypto::{Identity, Provider, PublicKey};
use netsim::provider::SimProvider;
use wire::{NodeId, Seed, UnixTime};

use super::{AdminKeys, Envelope, Holder};

/// Admins with their keys, and the provider that signs for them.
pub(super) struct Admins {
    pub(super) provider: SimProvider,
    identities: Vec<Identity>,
}

impl Admins {
    pub(super) fn new(count: usize) -> Self {
        let mut provider = SimProvider::new(Seed::from_number(5));
        let identities = (0..count).map(|_| Identity::generate(&mut provider).unwrap());
        Self {
            identities: identities.collect(),
            provider,
        }
    }

    pub(super) fn key(&self, admin: usize) -> PublicKey {
        *self.identities[admin].public_key()
    }

    pub(super) fn keys(&self, admins: &[usize], threshold: usize) -> AdminKeys {
        AdminKeys::new(admins.iter().map(|admin| self.key(*admin)), threshold).unwrap()
    }

    /// The JSON of the admins' part of a document.
    pub(super) fn json(&self, admins: &[usize], threshold: usize) -> String {
        let keys: Vec<String> = admins
            .iter()
            .map(|admin| format!("\"{}\"", self.key(*admin)))
            .collect();
        let keys = keys.join(",");
        format!("{{\"threshold\":{threshold},\"keys\":[{keys}]}}")
    }

    /// A document of the network `test` that these admins shall sign the next of.
    pub(super) fn document(
        &self,
        version: u64,
        (admins, threshold): (&[usize], usize),
        games: &str,
    ) -> String {
        let admins = self.json(admins, threshold);
        format!(
            "{{\"network\":\"test\",\"version\":{version},\"not_before\":{FROM},\
             \"not_after\":{UNTIL},\"admins\":{admins},\"games\":[{games}]}}"
        )
    }

    pub(super) fn sign(&mut self, document: &str, by: &[usize]) -> Envelope {
        let mut envelope = Envelope::new(document.as_bytes().to_vec()).unwrap();
        for &admin in by {
            let identity = &self.identities[admin];
            let key = self.provider.signing_key(identity).unwrap();
            let public = *identity.public_key();
            envelope.sign(&mut self.provider, &key, public).unwrap();
        }
        envelope
    }

    pub(super) fn signed(&mut self, document: &str, by: &[usize]) -> Vec<u8> {
        bytes(&self.sign(document, by))
    }

    /// A holder without a document that trusts these admins.
    pub(super) fn holder(&self, admins: &[usize], threshold: usize) -> Holder {
        Holder::new("test", self.keys(admins, threshold))
    }
}

pub(super) fn bytes(envelope: &Envelope) -> Vec<u8> {
    let mut bytes = Vec::new();
    envelope.encode(&mut bytes);
    bytes
}

/// The JSON of a game that all nodes may carry.
pub(super) fn game(name: &str, port: u16) -> String {
    game_with(name, port, "{\"type\":\"all\"}", "{\"type\":\"all\"}")
}

pub(super) fn game_with(name: &str, port: u16, entry: &str, exit: &str) -> String {
    format!(
        "{{\"name\":\"{name}\",\"protocol\":\"udp\",\"server\":\"192.0.2.7:5029\",\
         \"listen_ports\":[{port}],\"entry\":{entry},\"exit\":{exit}}}"
    )
}

pub(super) const fn node(number: u8) -> NodeId {
    NodeId([number; 32])
}

/// Seconds from which, and until which, its documents hold.
pub(super) const FROM: u64 = 1_000;
pub(super) const UNTIL: u64 = 2_000;
/// Within their time.
pub(super) const NOW: UnixTime = UnixTime::from_secs(1_500);
