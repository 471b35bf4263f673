//! Connect tokens: sealed, and the decoder of the sealed part.

use crypto::key_schedule::{Label, expand};
use crypto::{Aead, Audience, Provider, Secret32, Suite, TokenError, TokenGrant, TokenKey};
use netsim::provider::SimProvider;
use wire::{InstanceId, Seed, UnixTime};

/// The game and server instance of the corpus's tokens.
pub const AUDIENCE: Audience = Audience {
    app_id: 0x6675_7a7a,
    server_id: InstanceId(0x1122_3344_5566_7788),
};
/// The time at which tokens are opened.
pub const NOW: UnixTime = UnixTime::from_secs(1_800_000_000);
/// Id of the sealing key.
const KEY_ID: u32 = 1;
/// Secret of that key.
const SECRET: [u8; 32] = [0x42; 32];
/// Length of a token's unencrypted fields and its tag.
const CLEAR_LEN: usize = 29;

/// Returns the key that seals the corpus's tokens.
#[must_use]
pub fn key() -> TokenKey {
    let mut bytes = [0x42; TokenKey::LEN];
    for (to, from) in bytes.iter_mut().zip(KEY_ID.to_be_bytes()) {
        *to = from;
    }
    TokenKey::from_bytes(&bytes)
}

/// Opens the input as a token.
pub fn open(data: &[u8]) {
    let provider = SimProvider::new(Seed::from_number(1));
    if let Ok(token) = key().open(&provider, AUDIENCE, NOW, data) {
        check(&token.grant, data.len());
    }
}

/// Seals the input after the unencrypted fields of a valid token and opens the result, which tests
/// the decoder of the sealed part.
pub fn body(data: &[u8]) {
    let mut provider = SimProvider::new(Seed::from_number(1));
    let id = [7; 16];
    let clear = [
        &[1][..],
        &KEY_ID.to_be_bytes(),
        &id,
        &(NOW.as_secs() + 60).to_be_bytes(),
    ]
    .concat();
    let aad = [clear.as_slice(), &AUDIENCE.app_id.to_be_bytes()].concat();
    let secret = expand(
        &provider,
        &Secret32::new(SECRET),
        Label::new("tw1 token"),
        &id,
    );
    let (mut sealed, mut tag) = (data.to_vec(), [0; 16]);
    provider
        .aead(Suite::Aes256Gcm, &secret)
        .seal([0; 12], &aad, &mut sealed, &mut tag);
    let token = [clear.as_slice(), &sealed, &tag].concat();
    match key().open(&provider, AUDIENCE, NOW, &token) {
        Ok(token) => {
            let grant = &token.grant;
            check(grant, CLEAR_LEN + data.len() + 16);
            let again = key().seal(&mut provider, AUDIENCE.app_id, grant);
            assert_eq!(
                again.map(|again| again.as_bytes().len()),
                Ok(token_len(grant)),
                "what is decoded is encoded in another length"
            );
        }
        Err(error) => assert_ne!(error, TokenError::Forged, "it was sealed under this key"),
    }
}

fn check(grant: &TokenGrant, len: usize) {
    assert_eq!(grant.server_id, AUDIENCE.server_id);
    assert!(grant.issued_at < grant.expires_at);
    assert_eq!(token_len(grant), len, "bytes that nothing was read from");
}

/// Returns the length of unencrypted fields, tag and the decoded part.
fn token_len(grant: &TokenGrant) -> usize {
    let addresses = 19 * grant.addresses.as_slice().len();
    CLEAR_LEN + 79 + addresses + grant.user.as_bytes().len() + 16
}
