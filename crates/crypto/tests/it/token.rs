//! Connect tokens: valid ones open, others do not.

use core::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use core::time::Duration;

use crypto::token::{LIFETIME_MAX, TOKEN_LEN_MAX, TOKEN_LEN_MIN, USER_DATA_MAX};
use crypto::{
    AddressCount, AddressList, Audience, ConnectToken, Provider, Ring, SealTokenError, SealedToken,
    Secret32, TokenError, TokenGrant, TokenHeader, TokenKey, UserData, UserDataTooLong,
};
use proptest::prelude::*;
use wire::{ClientId, InstanceId, MatchId, Seat, Team, UnixTime};

use crate::vectors::{Vectors, unhex};

crate::for_each_provider!(
    what_is_sealed_opens,
    any_flipped_bit_is_refused,
    a_token_matches_its_vector,
    tokens_never_share_a_key,
);

fn what_is_sealed_opens<P: Provider>(provider: &mut P) {
    let key = TokenKey::generate(provider, 3).unwrap();
    for grant in [smallest(), largest()] {
        let token = key.seal(provider, APP, &grant).unwrap();
        let opened = key.open(provider, AUDIENCE, NOW, token.as_bytes()).unwrap();
        assert_eq!(
            opened,
            ConnectToken {
                header: token.header(),
                grant
            }
        );
        assert_eq!(opened.header.key_id, 3);
        assert_eq!(SealedToken::parse(token.as_bytes()), Ok(token));
    }
}

#[test]
fn sizes_are_those_of_the_specification() {
    let (mut provider, key) = ring();
    let len = |grant: &TokenGrant, provider: &mut Ring| {
        key.seal(provider, APP, grant).unwrap().as_bytes().len()
    };
    assert_eq!(len(&smallest(), &mut provider), 143);
    assert_eq!(len(&largest(), &mut provider), 788);
    assert_eq!((TOKEN_LEN_MIN, TOKEN_LEN_MAX), (143, 788));
}

fn any_flipped_bit_is_refused<P: Provider>(provider: &mut P) {
    let key = TokenKey::generate(provider, 3).unwrap();
    for grant in [smallest(), largest()] {
        let token = key.seal(provider, APP, &grant).unwrap();
        for bit in 0..token.as_bytes().len() * 8 {
            let mut flipped = token.as_bytes().to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let error = key.open(provider, AUDIENCE, NOW, &flipped).unwrap_err();
            match bit / 8 {
                0 => assert!(matches!(error, TokenError::Version(_)), "{bit}"),
                1..5 => assert!(matches!(error, TokenError::UnknownKey(_)), "{bit}"),
                21..29 => {
                    let by_time = matches!(error, TokenError::Expired | TokenError::Lifetime);
                    assert!(by_time || error == TokenError::Forged, "{bit}");
                }
                _ => assert_eq!(error, TokenError::Forged, "{bit}"),
            }
        }
    }
}

#[test]
fn any_other_length_is_refused() {
    let (mut provider, key) = ring();
    let token = key.seal(&mut provider, APP, &largest()).unwrap();
    let longer = [token.as_bytes(), &[0; 2_000]].concat();
    for len in (0..longer.len()).filter(|len| *len != TOKEN_LEN_MAX) {
        let error = key
            .open(&provider, AUDIENCE, NOW, &longer[..len])
            .unwrap_err();
        if (TOKEN_LEN_MIN..TOKEN_LEN_MAX).contains(&len) {
            assert_eq!(error, TokenError::Forged);
        } else {
            assert_eq!(error, TokenError::Length(len));
        }
    }
}

#[test]
fn expiry_allows_the_clock_skew_and_no_more() {
    let (mut provider, key) = ring();
    let token = key.seal(&mut provider, APP, &smallest()).unwrap();
    let open = |now: u64| {
        let now = UnixTime::from_millis(now);
        key.open(&provider, AUDIENCE, now, token.as_bytes())
            .map(|_| ())
    };
    let (issued, expires) = (
        smallest().issued_at.as_millis(),
        smallest().expires_at.as_millis(),
    );
    assert_eq!(open(expires + 4_999), Ok(()));
    assert_eq!(open(expires + 5_000), Err(TokenError::Expired));
    assert_eq!(open(u64::MAX), Err(TokenError::Expired));
    assert_eq!(open(issued - 5_000), Ok(()));
    assert_eq!(open(issued - 5_001), Err(TokenError::NotYetIssued));
    assert_eq!(open(0), Err(TokenError::Lifetime));
}

#[test]
fn a_lifetime_over_300_seconds_is_neither_sealed_nor_opened() {
    let (mut provider, key) = ring();
    let mut seal = |lifetime_ms: u64| {
        let expires_at = UnixTime::from_secs(1_000_000);
        let issued_at = UnixTime::from_millis(1_000_000_000 - lifetime_ms);
        key.seal(
            &mut provider,
            APP,
            &TokenGrant {
                issued_at,
                expires_at,
                ..smallest()
            },
        )
    };
    let longest = u64::try_from(LIFETIME_MAX.as_millis()).unwrap();
    assert!(seal(1).is_ok());
    assert!(seal(longest).is_ok());
    assert_eq!(seal(longest + 1), Err(SealTokenError::Lifetime));
    assert_eq!(seal(0), Err(SealTokenError::Lifetime));
    // Our sealer makes no token with a longer lifetime, so one is sealed by hand.
    let long = TokenGrant {
        issued_at: UnixTime::from_millis(smallest().expires_at.as_millis() - longest - 1),
        ..smallest()
    };
    let token = seal_by_hand(&provider, &key, long.expires_at, &plaintext(&long));
    let refused = key.open(&provider, AUDIENCE, NOW, &token);
    assert_eq!(refused, Err(TokenError::Lifetime));
    let backwards = TokenGrant {
        issued_at: smallest().expires_at,
        ..smallest()
    };
    let token = seal_by_hand(&provider, &key, long.expires_at, &plaintext(&backwards));
    let refused = key.open(&provider, AUDIENCE, smallest().expires_at, &token);
    assert_eq!(refused, Err(TokenError::Lifetime));
}

#[test]
fn a_token_is_for_one_game_one_instance_and_one_key() {
    let (mut provider, key) = ring();
    let token = key.seal(&mut provider, APP, &smallest()).unwrap();
    let open = |key: &TokenKey, audience| {
        key.open(&Ring::new(), audience, NOW, token.as_bytes())
            .map(|_| ())
    };
    assert_eq!(open(&key, AUDIENCE), Ok(()));
    let other_game = Audience {
        app_id: APP + 1,
        ..AUDIENCE
    };
    assert_eq!(open(&key, other_game), Err(TokenError::Forged));
    let other_instance = Audience {
        server_id: InstanceId(1),
        ..AUDIENCE
    };
    assert_eq!(
        open(&key, other_instance),
        Err(TokenError::OtherServer(SERVER))
    );
    let other_id = TokenKey::generate(&mut provider, 4).unwrap();
    assert_eq!(open(&other_id, AUDIENCE), Err(TokenError::UnknownKey(3)));
    let same_id = TokenKey::generate(&mut provider, 3).unwrap();
    assert_eq!(open(&same_id, AUDIENCE), Err(TokenError::Forged));
}

#[test]
fn malformed_contents_under_a_valid_seal_are_refused() {
    let (provider, key) = ring();
    let open = |body: &[u8]| {
        let token = seal_by_hand(&provider, &key, smallest().expires_at, body);
        key.open(&provider, AUDIENCE, NOW, &token)
            .map(|token| token.grant)
    };
    let good = plaintext(&smallest());
    assert_eq!(
        open(&good),
        Ok(smallest()),
        "the oracle below seals as we do"
    );
    let with = |offset: usize, value: u8| {
        let mut body = good.clone();
        body[offset] = value;
        open(&body)
    };
    let malformed = Err(TokenError::Malformed);
    for count in [0, 2, 9, 255] {
        assert_eq!(with(COUNT, count), malformed, "{count} addresses");
    }
    for family in [0, 5, 7] {
        assert_eq!(with(COUNT + 1, family), malformed, "family {family}");
    }
    assert_eq!(with(COUNT + 2, 1), malformed, "no mapped IPv4");
    assert_eq!(with(COUNT + 20, 1), malformed, "a flag that has no meaning");
    assert_eq!(
        with(good.len() - 1, 1),
        malformed,
        "more user data than bytes"
    );
    assert_eq!(
        open(&[&good[..], &[0]].concat()),
        malformed,
        "a byte too many"
    );
    let mut long = good[..good.len() - 2].to_vec();
    long.extend(513_u16.to_be_bytes());
    long.resize(long.len() + 513, 0);
    assert_eq!(open(&long), malformed, "513 bytes of user data");
}

#[test]
fn a_key_is_registered_as_36_bytes() {
    let (mut provider, key) = ring();
    let token = key.seal(&mut provider, APP, &smallest()).unwrap();
    let copy = TokenKey::from_bytes(&key.to_bytes());
    assert_eq!(copy.id(), 3);
    assert!(
        copy.open(&provider, AUDIENCE, NOW, token.as_bytes())
            .is_ok()
    );
    assert_eq!(key.to_bytes()[..4], [0, 0, 0, 3]);
}

/// Sealed by another implementation (hashlib, OpenSSL) from the specification.
fn a_token_matches_its_vector<P: Provider>(provider: &mut P) {
    let vectors = Vectors::parse(include_str!("../../testdata/token.hex"));
    let key = TokenKey::from_bytes(&vectors.array("key"));
    let opened = key
        .open(provider, AUDIENCE, NOW, vectors.get("token"))
        .unwrap();
    let addresses = [
        "192.0.2.7:4433".parse().unwrap(),
        "[2001:db8::7]:65535".parse().unwrap(),
    ];
    let expected = TokenGrant {
        psk: Secret32::new(core::array::from_fn(|index| u8::try_from(index).unwrap())),
        addresses: AddressList::new(&addresses).unwrap(),
        user: UserData::new(b"squad=red").unwrap(),
        ..smallest()
    };
    assert_eq!(opened.grant, expected);
    assert_eq!(opened.header.token_id.0, [0xA5; 16]);
    assert_eq!(opened.header.expires_at, expected.expires_at);
}

fn tokens_never_share_a_key<P: Provider>(provider: &mut P) {
    let key = TokenKey::generate(provider, 3).unwrap();
    let mut seal = || key.seal(provider, APP, &smallest()).unwrap();
    let (a, b) = (seal(), seal());
    assert_ne!(a.header().token_id, b.header().token_id);
    assert_ne!(a.as_bytes()[29..], b.as_bytes()[29..]);
}

#[test]
fn twp_k12_tokens_print_no_secret() {
    let (mut provider, key) = ring();
    let token = key.seal(&mut provider, APP, &smallest()).unwrap();
    assert_eq!(format!("{token:?}"), "SealedToken(143 bytes)");
    let opened = key
        .open(&provider, AUDIENCE, NOW, token.as_bytes())
        .unwrap();
    let text = format!("{opened:?}");
    assert!(text.contains("psk: Secret32(..)"), "{text}");
    assert!(text.contains("UserData(0 bytes)"), "{text}");
    assert!(!text.contains("66, 66"), "a byte of the psk: {text}");
}

#[test]
fn lists_and_user_data_have_limits() {
    let address = "192.0.2.1:1".parse().unwrap();
    assert_eq!(AddressList::new(&[]), Err(AddressCount(0)));
    assert!(AddressList::new(&[address; 8]).is_ok());
    assert_eq!(AddressList::new(&[address; 9]), Err(AddressCount(9)));
    assert!(UserData::new(&[0; USER_DATA_MAX]).is_ok());
    assert_eq!(UserData::new(&[0; 513]), Err(UserDataTooLong(513)));
    let scoped = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 5, 6, 7);
    let list = AddressList::new(&[SocketAddr::V6(scoped)]).unwrap();
    assert_eq!(list.as_slice(), ["[::1]:5".parse::<SocketAddr>().unwrap()]);
}

proptest! {
    #[test]
    fn any_grant_that_is_sealed_opens_the_same(grant in any_grant(), app_id: u64) {
        let (mut provider, key) = ring();
        let token = key.seal(&mut provider, app_id, &grant).unwrap();
        let audience = Audience { app_id, server_id: grant.server_id };
        let opened = key.open(&provider, audience, grant.issued_at, token.as_bytes());
        prop_assert_eq!(opened.unwrap().grant, grant);
    }

    #[test]
    fn any_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..900)) {
        let (provider, key) = ring();
        prop_assert!(key.open(&provider, AUDIENCE, NOW, &bytes).is_err());
        let read = TokenHeader::decode(&bytes);
        prop_assert_eq!(read.is_ok(), SealedToken::parse(&bytes).is_ok());
    }

    #[test]
    fn any_bytes_under_a_valid_seal_open_unchanged_or_are_refused(
        mut body in prop::collection::vec(any::<u8>(), 98..743),
        count in 0_u8..10,
        user_len: u16,
    ) {
        // Partly valid input; otherwise nearly all would fail at the count.
        let (provider, key) = ring();
        let good = plaintext(&smallest());
        body[..COUNT].copy_from_slice(&good[..COUNT]);
        body[COUNT] = count;
        let tail = COUNT + 1 + 19 * usize::from(count);
        for address in body[COUNT + 1..].chunks_mut(19).take(usize::from(count)) {
            address[0] = 6;
        }
        if let Some(flags) = body.get_mut(tail) {
            *flags = 0;
        }
        let exact = body.len().saturating_sub(tail + 22);
        let len = if user_len % 4 == 0 { user_len } else { u16::try_from(exact).unwrap() };
        if let Some(field) = body.get_mut(tail + 20..tail + 22) {
            field.copy_from_slice(&len.to_be_bytes());
        }
        let token = seal_by_hand(&provider, &key, smallest().expires_at, &body);
        if let Ok(opened) = key.open(&provider, AUDIENCE, NOW, &token) {
            prop_assert_eq!(plaintext(&opened.grant), body);
        }
    }
}

fn any_grant() -> impl Strategy<Value = TokenGrant> {
    let addresses = prop::collection::vec(any::<SocketAddr>(), 1..=8);
    let user = prop::collection::vec(any::<u8>(), 0..=USER_DATA_MAX);
    let times = (1_000_000_u64..1 << 50, 1_001_u64..=300_000);
    let ids = any::<(u64, [u8; 32], u64, [u8; 16], u16, u8)>();
    (addresses, user, times, ids).prop_map(|(addresses, user, (issued, lifetime), ids)| {
        let (client, psk, server, match_id, seat, team) = ids;
        TokenGrant {
            issued_at: UnixTime::from_millis(issued),
            expires_at: UnixTime::from_secs((issued + lifetime) / 1_000),
            client_id: ClientId(client),
            psk: Secret32::new(psk),
            server_id: InstanceId(server),
            addresses: AddressList::new(&addresses).unwrap(),
            match_id: MatchId(match_id),
            seat: Seat(seat),
            team: Team(team),
            user: UserData::new(&user).unwrap(),
        }
    })
}

pub(crate) fn smallest() -> TokenGrant {
    TokenGrant {
        issued_at: UnixTime::from_millis(1_700_000_000_123),
        expires_at: UnixTime::from_secs(1_700_000_060),
        client_id: ClientId(0x1122_3344_5566_7788),
        psk: Secret32::new([66; 32]),
        server_id: SERVER,
        addresses: AddressList::new(&["192.0.2.7:4433".parse().unwrap()]).unwrap(),
        match_id: MatchId([0x4D; 16]),
        seat: Seat(513),
        team: Team(2),
        user: UserData::default(),
    }
}

pub(crate) fn largest() -> TokenGrant {
    let addresses: Vec<SocketAddr> = (0..8_u16)
        .map(|index| SocketAddr::new(Ipv6Addr::from([0x20 + index; 8]).into(), 65_535 - index))
        .collect();
    TokenGrant {
        addresses: AddressList::new(&addresses).unwrap(),
        user: UserData::new(&[0xEE; USER_DATA_MAX]).unwrap(),
        ..smallest()
    }
}

/// The sealed fields, written independently from the specification.
fn plaintext(grant: &TokenGrant) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(grant.issued_at.as_millis().to_be_bytes());
    out.extend(grant.client_id.0.to_be_bytes());
    out.extend(grant.psk.expose());
    out.extend(grant.server_id.0.to_be_bytes());
    out.push(u8::try_from(grant.addresses.as_slice().len()).unwrap());
    for address in grant.addresses.as_slice() {
        match address {
            SocketAddr::V4(v4) => {
                out.push(4);
                out.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF]);
                out.extend(v4.ip().octets());
            }
            SocketAddr::V6(v6) => {
                out.push(6);
                out.extend(v6.ip().octets());
            }
        }
        out.extend(address.port().to_be_bytes());
    }
    out.push(0);
    out.extend(grant.match_id.0);
    out.extend(grant.seat.0.to_be_bytes());
    out.push(grant.team.0);
    out.extend(
        u16::try_from(grant.user.as_bytes().len())
            .unwrap()
            .to_be_bytes(),
    );
    out.extend(grant.user.as_bytes());
    out
}

/// Seals any plaintext as specified, with a fixed token id.
fn seal_by_hand(
    provider: &Ring,
    key: &TokenKey,
    expires_at: UnixTime,
    plaintext: &[u8],
) -> Vec<u8> {
    use crypto::{Aead, Suite, hkdf};
    let registered = key.to_bytes();
    let (id, secret) = registered.split_first_chunk::<4>().unwrap();
    let info = [b"\x00\x20\x09tw1 token\x10".as_slice(), &[7; 16]].concat();
    let secret = Secret32::new(secret.try_into().unwrap());
    let token_key = Secret32::new(hkdf::expand(provider, &secret, &info));
    let clear = [&[1][..], id, &[7; 16], &expires_at.as_secs().to_be_bytes()].concat();
    let aad = [&clear[..], &APP.to_be_bytes()].concat();
    let (mut body, mut tag) = (plaintext.to_vec(), [0; 16]);
    let aead = provider.aead(Suite::Aes256Gcm, &token_key);
    aead.seal([0; 12], &aad, &mut body, &mut tag);
    [&clear[..], &body, &tag].concat()
}

fn ring() -> (Ring, TokenKey) {
    let mut provider = Ring::new();
    let key = TokenKey::generate(&mut provider, 3).unwrap();
    (provider, key)
}

#[test]
fn the_vector_file_has_no_other_token() {
    let vectors = Vectors::parse(include_str!("../../testdata/token.hex"));
    assert_eq!(vectors.get("token").len(), 143 + 19 + 9);
    assert_eq!(vectors.get("key")[..4], unhex("00000003"));
    assert!(Duration::from_secs(300) == LIFETIME_MAX);
}

/// Offset of the address count in the plaintext.
const COUNT: usize = 56;
const APP: u64 = 0xAA55;
const SERVER: InstanceId = InstanceId(0x5E4E);
const AUDIENCE: Audience = Audience {
    app_id: APP,
    server_id: SERVER,
};
const NOW: UnixTime = UnixTime::from_millis(1_700_000_001_000);
