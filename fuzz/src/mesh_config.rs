//! Signed configuration, from a neighbour or as an admin's text.

use crypto::{Identity, PublicKey};
use netsim::provider::SimProvider;
use relay_mesh::signed_config::{
    AdminKeys, ConfigMessage, Document, Envelope, Holder, Import, NodeFile, Offered, Refused,
};
use wire::{NodeId, Seed, UnixTime};

use crate::mesh_message::signer;

/// Decodes offers. Only the two signed documents are ever applied, and the applied one can be
/// restored from storage.
pub fn offered(data: &[u8]) {
    if let Ok(envelope) = Envelope::decode(data) {
        let mut again = Vec::new();
        envelope.encode(&mut again);
        assert_eq!(again, data, "two ways to write {envelope:?}");
    }
    let provider = SimProvider::new(Seed::from_number(1));
    let mut holder = Holder::new("fuzz", anchor());
    match holder.offer(&provider, NOW, data) {
        Offered::Accepted(accepted) => {
            let text = document(accepted.version);
            assert!(accepted.version <= 2, "nobody signed it");
            assert_eq!(holder.text(), Some(text.as_bytes()), "nobody signed it");
            let stored = holder.stored().expect("a document");
            let restored = Holder::restore("fuzz", anchor(), &provider, &stored);
            let restored = restored.expect("it was in force");
            assert_eq!(restored.stored(), Some(stored));
            assert_eq!(holder.offer(&provider, NOW, data), Offered::Known);
        }
        Offered::Known => panic!("nothing is known"),
        Offered::Refused(Refused::Document(fault)) => panic!("it was signed: {fault}"),
        Offered::Refused(_) => assert_eq!(holder.stored(), None),
    }
}

/// Parses a document's text. It is rejected with a short message, or an accepted one can be signed.
pub fn text(data: &[u8]) {
    match Document::read(data) {
        Ok(read) => {
            Envelope::new(data.to_vec()).expect("it is a document");
            let node = NodeId([1; 32]);
            for name in read.games.keys() {
                let may = read.may_enter(name, &node) && read.may_exit(name, &node);
                assert!(!may || read.is_member(&node));
            }
        }
        Err(error) => assert!(error.to_string().len() <= data.len() * 2 + 500),
    }
    // File formats of an earlier system. An error may quote the text, which grows by its escapes.
    let longest = data.len() * 10 + 500;
    if let Err(error) = NodeFile::read(data) {
        assert!(error.to_string().len() <= longest);
    }
    match Import::default().games(data) {
        Ok(games) => assert!(games.len() <= longest * 10),
        Err(error) => assert!(error.to_string().len() <= longest),
    }
}

/// Decodes messages. An accepted one has one encoding.
pub fn message(data: &[u8]) {
    if let Ok(message) = ConfigMessage::decode(data) {
        let mut again = Vec::new();
        message.encode(&mut again);
        assert_eq!(again, data, "two ways to write {message:?}");
    }
}

/// Returns the text of the document with this version.
#[must_use]
pub fn document(version: u64) -> String {
    let key = public_key();
    format!(
        "{{\"network\":\"fuzz\",\"version\":{version},\"not_before\":1000,\"not_after\":2000,\
         \"admins\":{{\"threshold\":1,\"keys\":[\"{key}\"]}},\"games\":[{{\"name\":\"doom\",\
         \"protocol\":\"udp\",\"server\":\"192.0.2.7:5029\",\"listen_ports\":[5029],\
         \"entry\":{{\"type\":\"all\"}},\"exit\":{{\"type\":\"black\",\"nodes\":[]}}}}]}}"
    )
}

/// Returns the signed document.
#[must_use]
pub fn envelope(version: u64) -> Vec<u8> {
    let (mut provider, key) = signer();
    let mut envelope = Envelope::new(document(version).into_bytes()).expect("a document");
    let signed = envelope.sign(&mut provider, &key, public_key());
    signed.expect("seeded");
    let mut bytes = Vec::new();
    envelope.encode(&mut bytes);
    bytes
}

fn anchor() -> AdminKeys {
    AdminKeys::new([public_key()], 1).expect("a key")
}

/// Returns the public key of [`signer`].
fn public_key() -> PublicKey {
    let mut provider = SimProvider::new(Seed::from_number(9));
    let identity = Identity::generate(&mut provider).expect("seeded");
    *identity.public_key()
}

/// A time within the documents' validity.
const NOW: UnixTime = UnixTime::from_secs(1_500);
