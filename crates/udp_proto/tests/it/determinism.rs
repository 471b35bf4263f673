//! D1: one seed gives the same bytes with any AEAD implementation.

use core::time::Duration;

use crypto::{
    BadPoint, Identity, NoEntropy, Provider, PublicKey, Role, RustCrypto, Secret32, Suite,
};
use netsim::provider::{SimEphemeral, SimProvider, SimSigningKey};
use udp_proto::Config;
use wire::Seed;

use crate::direct::{Line, Sent};
use crate::harness::{RELIABLE, UNRELIABLE};
use crate::key_update::{copies, every};

/// [`SimProvider`] with the AEADs of `P`.
struct Sealed<P> {
    sim: SimProvider,
    aead: P,
}

impl<P: Provider> Provider for Sealed<P> {
    type Aead = P::Aead;
    type Ephemeral = SimEphemeral;
    type SigningKey = SimSigningKey;

    fn random(&mut self, out: &mut [u8]) -> Result<(), NoEntropy> {
        self.sim.random(out)
    }

    fn ephemeral(&mut self, role: Role) -> Result<(SimEphemeral, PublicKey), NoEntropy> {
        self.sim.ephemeral(role)
    }

    fn agree(&self, own: &mut SimEphemeral, peer: &PublicKey) -> Result<Secret32, BadPoint> {
        self.sim.agree(own, peer)
    }

    fn aead(&self, suite: Suite, key: &Secret32) -> P::Aead {
        self.aead.aead(suite, key)
    }

    fn signing_key(&mut self, identity: &Identity) -> Result<SimSigningKey, NoEntropy> {
        self.sim.signing_key(identity)
    }

    fn sign(&mut self, key: &SimSigningKey, message: &[u8]) -> Result<[u8; 64], NoEntropy> {
        self.sim.sign(key, message)
    }

    fn verify(&self, key: &PublicKey, message: &[u8], signature: &[u8; 64]) -> bool {
        self.sim.verify(key, message, signature)
    }

    fn sha256(&self, parts: &[&[u8]]) -> [u8; 32] {
        self.aead.sha256(parts)
    }

    fn hmac_sha256(&self, key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
        self.aead.hmac_sha256(key, parts)
    }
}

/// Every datagram of a session with key updates over a line with loss and duplication.
fn bytes<P: Provider>(suite: Suite, provider: impl Fn() -> P) -> Vec<Vec<u8>> {
    let seed = Seed::from_number(1);
    let end = |number| Sealed {
        sim: SimProvider::new(seed.generator(number).seed()),
        aead: provider(),
    };
    let mut config: Config = every(32);
    config.suite = suite;
    let mut line = Line::between(seed, config, |listen| listen, (end(1), end(2)));
    let credentials = line.token(1);
    line.client.dial(line.now, &line.keys, credentials);
    let mut generator = seed.generator(3);
    let mut record = Vec::new();
    for turn in 0..1_500_u32 {
        line.now += Duration::from_millis(4);
        let channel = [UNRELIABLE, RELIABLE][usize::from(turn % 3 == 0)];
        let len = usize::try_from(generator.below(1_400)).unwrap();
        for is_up in [true, false] {
            let (from, to) = if is_up {
                (&mut line.client, &mut line.server)
            } else {
                (&mut line.server, &mut line.client)
            };
            let open: Vec<_> = from.machine.sessions().collect();
            for session in open {
                // The queue may be full.
                let message = vec![7; len];
                from.machine.send(line.now, session, channel, &message).ok();
            }
            from.wake(line.now);
            for Sent { bytes, .. } in from.drain(line.now) {
                for _ in 0..copies(&mut generator) {
                    to.take(line.now, from.at, &bytes);
                }
                record.push(bytes);
            }
        }
    }
    assert_eq!(line.server.sessions().len(), 1);
    assert!(record.len() > 3_000, "{} datagrams", record.len());
    record
}

#[test]
fn twp_d1_every_aead_gives_the_same_bytes() {
    for suite in Suite::ALL {
        let expected = bytes(suite, || SimProvider::new(Seed::from_number(9)));
        let found = bytes(suite, RustCrypto::new);
        assert!(found == expected, "rustcrypto, {suite:?}");
        #[cfg(feature = "ring")]
        {
            let found = bytes(suite, crypto::Ring::new);
            assert!(found == expected, "ring, {suite:?}");
        }
        #[cfg(feature = "aws-lc-rs")]
        {
            let found = bytes(suite, crypto::AwsLcRs::new);
            assert!(found == expected, "aws-lc-rs, {suite:?}");
        }
    }
}
