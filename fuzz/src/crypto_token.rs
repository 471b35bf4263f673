//! Connect tokens: as they come, and behind the AEAD.

use crypto::key_schedule::{Label, expand};
use crypto::{Aead, Audience, Provider, Secret32, Suite, TokenError, TokenGrant, TokenKey};
use netsim::provider::SimProvider;
use wire::{InstanceId, Seed, UnixTime};

/// The game and the instance that the tokens of the corpus are for.
pub const AUDIENCE: Audience = Audience {
    app_id: 0x6675_7a7a,
    server_id: InstanceId(0x1122_3344_5566_7788),
};
/// When they are opened.
pub const NOW: UnixTime = UnixTime::from_secs(1_800_000_000);
/// Number of the key that seals them.
const KEY_ID: u32 = 1;
/// Secret of it.
const SECRET: [u8; 32] = [0x42; 32];
/// Clear fields of a token, and the tag behind the rest.
const CLEAR_LEN: usize = 29;

/// Returns the key that the tokens of the corpus are sealed under.
#[must_use]
pub fn key() -> TokenKey {
    let mut bytes = [0x42; TokenKey::LEN];
    for (to, from) in bytes.iter_mut().zip(KEY_ID.to_be_bytes()) {
        *to = from;
    }
    TokenKey::from_bytes(&bytes)
}

/// Opens any bytes as a token.
pub fn open(data: &[u8]) {
    let provider = SimProvider::new(Seed::from_number(1));
    if let Ok(token) = key().open(&provider, AUDIENCE, NOW, data) {
        check(&token.grant, data.len());
    }
}

/// Seals any bytes behind the clear fields of a good token, and opens that: what the decoder of
/// the sealed part makes of them.
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

/// Clear fields, tag, and what was read between them.
fn token_len(grant: &TokenGrant) -> usize {
    let addresses = 19 * grant.addresses.as_slice().len();
    CLEAR_LEN + 79 + addresses + grant.user.as_bytes().len() + 16
}
