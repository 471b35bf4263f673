//! The worked example of docs/signed-config.md.

use core::fmt::Write;

use crypto::{Identity, Provider};
use netsim::provider::SimProvider;
use wire::{NodeId, Seed, UnixTime};

use super::fixture::bytes;
use super::{AdminKeys, Envelope, Holder, Offered};

const PAGE: &str = include_str!("../../../../docs/signed-config.md");
/// The key of RFC 6979, appendix A.2.5.
const KEY: &str = include_str!("../../../crypto/testdata/pem/rfc6979.pem");

/// The first code block of `language` on the page.
fn block(language: &str) -> &'static str {
    let fence = format!("```{language}\n");
    let (_, after) = PAGE.split_once(&fence).expect("a block");
    after.split_once("\n```").expect("its end").0
}

#[test]
fn pgx7_the_worked_example_is_what_is_signed_to_the_last_byte() {
    let identity = Identity::from_pem(KEY).unwrap();
    let public = *identity.public_key();
    let text = block("json");
    let mut provider = SimProvider::new(Seed::from_number(1));
    let key = provider.signing_key(&identity).unwrap();
    let mut envelope = Envelope::new(text.as_bytes().to_vec()).unwrap();
    envelope.sign(&mut provider, &key, public).unwrap();
    let signed = bytes(&envelope);
    let (head, document) = signed.split_at(signed.len() - text.len());
    assert_eq!(document, text.as_bytes());
    let head = head.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes all");
        text
    });
    let reported: String = block("text").split_whitespace().collect();
    assert_eq!(reported, head, "the page holds other bytes");
    assert!(PAGE.contains(&format!("has {} bytes", text.len())));

    let mut holder = Holder::new("east-1", AdminKeys::new([public], 1).unwrap());
    let now = UnixTime::from_secs(1_800_000_000);
    let offered = holder.offer(&provider, now, &signed);
    assert!(matches!(offered, Offered::Accepted(_)), "{offered:?}");
    let document = holder.document().unwrap();
    let [entry, relay, exit] = [0x11, 0x22, 0x33].map(|byte| NodeId([byte; 32]));
    assert!(document.may_enter("doom", &entry) && !document.may_enter("doom", &exit));
    assert!(document.may_exit("doom", &exit) && document.may_relay(&relay));
}
