//! Requirements on every provider: rejects invalid points, matches published vectors, agrees with
//! the others.

use crypto::{Aead, BadPoint, Identity, OpenError, Provider, PublicKey, Role, Secret32, Suite};

use crate::vectors::{unhex, unhex_array};

crate::for_each_provider!(
    twp_k10_invalid_points_are_refused,
    a_dialler_survives_bad_points,
    an_accepter_key_is_spent_by_its_first_agreement,
    an_accepter_agrees_with_a_dialler,
    ephemeral_keys_differ,
    agreement_matches_nist_cavp,
    gcm_matches_its_published_vectors,
    chacha20_poly1305_matches_rfc_8439,
    sha256_and_hmac_match_published_vectors,
    signatures_verify_and_changed_ones_do_not,
    verify_accepts_rfc_6979_and_its_negation,
    opening_refuses_another_key,
    a_refused_body_shows_no_plaintext,
    packets_of_every_length_open,
);

fn twp_k10_invalid_points_are_refused<P: Provider>(provider: &mut P) {
    let identity = Identity::generate(provider).unwrap();
    let key = provider.signing_key(&identity).unwrap();
    let signature = provider.sign(&key, b"message").unwrap();
    for (name, point) in invalid_points() {
        for role in [Role::Dialler, Role::Accepter] {
            let (mut own, _) = provider.ephemeral(role).unwrap();
            let refused = provider.agree(&mut own, &point);
            assert_eq!(refused, Err(BadPoint), "{name}, {role:?}");
        }
        assert!(!provider.verify(&point, b"message", &signature), "{name}");
        assert_eq!(PublicKey::parse(&point.0), Err(BadPoint), "{name}");
    }
    let valid = identity.public_key().0;
    assert_eq!(PublicKey::parse(&valid), Ok(*identity.public_key()));
    assert_eq!(PublicKey::parse(&valid[..64]), Err(BadPoint));
    assert_eq!(
        PublicKey::parse(&[&valid[..], &[0]].concat()),
        Err(BadPoint)
    );
    let mut compressed = valid[..33].to_vec();
    compressed[0] = 2 + (valid[64] & 1);
    assert_eq!(PublicKey::parse(&compressed), Err(BadPoint));
}

fn a_dialler_survives_bad_points<P: Provider>(provider: &mut P) {
    let (mut dialler, ce) = provider.ephemeral(Role::Dialler).unwrap();
    let (mut accepter, se) = provider.ephemeral(Role::Accepter).unwrap();
    let expected = provider.agree(&mut accepter, &ce).unwrap();
    for (_, point) in invalid_points() {
        assert_eq!(provider.agree(&mut dialler, &point), Err(BadPoint));
    }
    let (_, other) = provider.ephemeral(Role::Accepter).unwrap();
    assert_ne!(provider.agree(&mut dialler, &other).unwrap(), expected);
    for _ in 0..2 {
        assert_eq!(provider.agree(&mut dialler, &se).unwrap(), expected);
    }
}

fn an_accepter_key_is_spent_by_its_first_agreement<P: Provider>(provider: &mut P) {
    let (_, peer) = provider.ephemeral(Role::Dialler).unwrap();
    let (mut own, _) = provider.ephemeral(Role::Accepter).unwrap();
    assert!(provider.agree(&mut own, &peer).is_ok());
    assert_eq!(provider.agree(&mut own, &peer), Err(BadPoint));
    let (mut own, _) = provider.ephemeral(Role::Accepter).unwrap();
    assert!(provider.agree(&mut own, &PublicKey([4; 65])).is_err());
    assert_eq!(provider.agree(&mut own, &peer), Err(BadPoint));
}

fn an_accepter_agrees_with_a_dialler<P: Provider>(provider: &mut P) {
    for _ in 0..20 {
        let (mut dialler, ce) = provider.ephemeral(Role::Dialler).unwrap();
        let (mut accepter, se) = provider.ephemeral(Role::Accepter).unwrap();
        let at_dialler = provider.agree(&mut dialler, &se).unwrap();
        assert_eq!(provider.agree(&mut accepter, &ce).unwrap(), at_dialler);
    }
}

fn ephemeral_keys_differ<P: Provider>(provider: &mut P) {
    let mut seen = std::collections::BTreeSet::new();
    for role in [Role::Dialler, Role::Accepter].repeat(10) {
        assert!(seen.insert(provider.ephemeral(role).unwrap().1));
    }
    let mut random = [[0; 32]; 2];
    for out in &mut random {
        provider.random(out).unwrap();
    }
    assert_ne!(random[0], random[1]);
    assert_ne!(random[0], [0; 32]);
}

/// Checks p256 against NIST CAVP, ECC CDH primitive, P-256, count 0. The provider generates its own
/// keys, so it is checked by agreement with p256 under the published key.
fn agreement_matches_nist_cavp<P: Provider>(provider: &mut P) {
    let scalar = unhex("7d7dc5f71eb29ddaf80d6214632eeae03d9058af1fb6d22ed80badb62bc1a534");
    let published = p256::SecretKey::from_slice(&scalar).unwrap();
    let peer = p256::PublicKey::from_sec1_bytes(&unhex(concat!(
        "04",
        "700c48f77f56584c5cc632ca65640db91b6bacce3a4df6b42ce7cc838833d287",
        "db71e509e3fd9b060ddb20ba5c51dcc5948d46fbf640dfe0441782cab85fa4ac",
    )));
    assert_eq!(
        published.diffie_hellman(&peer.unwrap()).raw_secret_bytes()[..],
        unhex("46fc62106420ff012e54a434fbdd2d25ccc5852060561e68040dd7778997bd7b"),
    );
    let holder = PublicKey::from(published.public_key());
    for role in [Role::Dialler, Role::Accepter] {
        let (mut own, public) = provider.ephemeral(role).unwrap();
        let shared = provider.agree(&mut own, &holder).unwrap();
        let public = p256::PublicKey::from_sec1_bytes(&public.0).unwrap();
        let expected = published.diffie_hellman(&public);
        assert_eq!(shared.expose()[..], expected.raw_secret_bytes()[..]);
    }
}

/// `McGrew` and Viega, "The Galois/Counter Mode of Operation", test cases 1, 2, 4, 13, 14 and 16.
fn gcm_matches_its_published_vectors<P: Provider>(provider: &mut P) {
    for case in GCM {
        let suite = if case[0].len() == 32 {
            Suite::Aes128Gcm
        } else {
            Suite::Aes256Gcm
        };
        check_aead(provider, suite, case);
    }
}

/// RFC 8439, section 2.8.2.
fn chacha20_poly1305_matches_rfc_8439<P: Provider>(provider: &mut P) {
    let plain = concat!(
        "4c616469657320616e642047656e746c656d656e206f662074686520636c6173",
        "73206f66202739393a204966204920636f756c64206f6666657220796f75206f",
        "6e6c79206f6e652074697020666f7220746865206675747572652c2073756e73",
        "637265656e20776f756c642062652069742e",
    );
    let sealed = concat!(
        "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d6",
        "3dbea45e8ca9671282fafb69da92728b1a71de0a9e060b2905d6a5b67ecd3b36",
        "92ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc",
        "3ff4def08e4b7a9de576d26586cec64b6116",
    );
    let case = [
        "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f",
        "070000004041424344454647",
        "50515253c0c1c2c3c4c5c6c7",
        plain,
        sealed,
        "1ae10b594f09e26a7e902ecbd0600691",
    ];
    check_aead(provider, Suite::ChaCha20Poly1305, case);
}

fn check_aead<P: Provider>(provider: &P, suite: Suite, case: [&str; 6]) {
    let [key, nonce, aad, plain, sealed, tag] = case.map(unhex);
    let mut padded = [0xEE; 32];
    padded[..key.len()].copy_from_slice(&key);
    let aead = provider.aead(suite, &Secret32::new(padded));
    let nonce = nonce.try_into().unwrap();
    let mut inout = plain.clone();
    let mut made = [0; 16];
    aead.seal(nonce, &aad, &mut inout, &mut made);
    assert_eq!(inout, sealed);
    assert_eq!(made.to_vec(), tag);
    assert_eq!(aead.open(nonce, &aad, &mut inout, &made), Ok(()));
    assert_eq!(inout, plain);
}

/// FIPS 180-4 examples and RFC 4231, test cases 1, 2 and 6.
fn sha256_and_hmac_match_published_vectors<P: Provider>(provider: &mut P) {
    let abc = unhex_array("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_eq!(provider.sha256(&[b"abc"]), abc);
    assert_eq!(provider.sha256(&[b"a", b"", b"bc"]), abc);
    assert_eq!(
        provider.sha256(&[]),
        unhex_array("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
    );
    assert_eq!(
        provider.hmac_sha256(&[0x0b; 20], &[b"Hi", b" There"]),
        unhex_array("b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
    );
    assert_eq!(
        provider.hmac_sha256(b"Jefe", &[b"what do ya want for nothing?"]),
        unhex_array("5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"),
    );
    assert_eq!(
        provider.hmac_sha256(
            &[0xaa; 131],
            &[b"Test Using Larger Than Block-Size Key - Hash Key First"],
        ),
        unhex_array("60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"),
    );
}

fn signatures_verify_and_changed_ones_do_not<P: Provider>(provider: &mut P) {
    let identity = Identity::generate(provider).unwrap();
    let other = Identity::generate(provider).unwrap();
    let key = provider.signing_key(&identity).unwrap();
    let signature = provider.sign(&key, b"a message").unwrap();
    let public = identity.public_key();
    assert!(provider.verify(public, b"a message", &signature));
    assert!(!provider.verify(public, b"b message", &signature));
    assert!(!provider.verify(other.public_key(), b"a message", &signature));
    for byte in 0..signature.len() {
        let mut changed = signature;
        changed[byte] ^= 0x10;
        assert!(!provider.verify(public, b"a message", &changed), "{byte}");
    }
    assert!(!provider.verify(public, b"a message", &[0; 64]));
    assert!(!provider.verify(public, b"a message", &[0xFF; 64]));
}

/// RFC 6979, appendix A.2.5: P-256 with SHA-256, message "sample".
fn verify_accepts_rfc_6979_and_its_negation<P: Provider>(provider: &mut P) {
    let public = PublicKey::parse(&unhex(RFC_6979_PUBLIC)).unwrap();
    let signature: [u8; 64] = unhex_array(RFC_6979_SAMPLE);
    assert!(provider.verify(&public, b"sample", &signature));
    assert!(!provider.verify(&public, b"test", &signature));
    // ECDSA is malleable: (r, n - s) verifies too. So signatures must not serve as identifiers.
    let s = p256::NonZeroScalar::try_from(&signature[32..]).unwrap();
    let mut twin = signature;
    twin[32..].copy_from_slice(&(-*s).to_bytes());
    assert_ne!(twin, signature);
    assert!(provider.verify(&public, b"sample", &twin));
}

fn opening_refuses_another_key<P: Provider>(provider: &mut P) {
    for suite in Suite::ALL {
        let aead = provider.aead(suite, &Secret32::new([1; 32]));
        let other = provider.aead(suite, &Secret32::new([2; 32]));
        let (mut body, mut tag) = ([9; 33], [0; 16]);
        aead.seal([0; 12], b"aad", &mut body, &mut tag);
        let mut copy = body;
        assert_eq!(other.open([0; 12], b"aad", &mut copy, &tag), Err(OpenError));
        assert_eq!(aead.open([0; 12], b"aad", &mut body, &tag), Ok(()));
        assert_eq!(body, [9; 33]);
    }
}

/// RUSTSEC-2023-0096 was such a leak.
fn a_refused_body_shows_no_plaintext<P: Provider>(provider: &mut P) {
    for suite in Suite::ALL {
        let aead = provider.aead(suite, &Secret32::new([1; 32]));
        for len in [16, 64, 1_100] {
            let (mut body, mut tag) = (vec![0x5A; len], [0; 16]);
            aead.seal([0; 12], b"aad", &mut body, &mut tag);
            tag[0] ^= 1;
            assert_eq!(aead.open([0; 12], b"aad", &mut body, &tag), Err(OpenError));
            // Random bytes have a run of four equal bytes once in 2^24 places; the plaintext is one
            // such run.
            let run = body.windows(4).any(|window| window == [0x5A; 4]);
            assert!(!run, "{suite:?}, {len} bytes");
        }
    }
}

/// Lengths around the block sizes of the ciphers and of their vector instructions, up to a
/// datagram.
fn packets_of_every_length_open<P: Provider>(provider: &mut P) {
    for suite in Suite::ALL {
        let aead = provider.aead(suite, &Secret32::new([7; 32]));
        for len in (0..300).chain([511, 512, 513, 1_023, 1_024, 1_025, 1_199, 1_472]) {
            let (mut body, mut tag) = (vec![0x5A; len], [0; 16]);
            aead.seal([3; 12], &vec![1; len], &mut body, &mut tag);
            let opened = aead.open([3; 12], &vec![1; len], &mut body, &tag);
            assert_eq!((opened, body), (Ok(()), vec![0x5A; len]), "{suite:?}");
        }
    }
}

/// Every way in which 65 bytes can fail to be an uncompressed point.
fn invalid_points() -> Vec<(&'static str, PublicKey)> {
    let valid: [u8; 65] = unhex_array(RFC_6979_PUBLIC);
    let with = |change: &dyn Fn(&mut [u8; 65])| {
        let mut bytes = valid;
        change(&mut bytes);
        PublicKey(bytes)
    };
    // The field's prime, 2^256 - 2^224 + 2^192 + 2^96 - 1.
    let p = unhex("ffffffff00000001000000000000000000000000ffffffffffffffffffffffff");
    // x = 0 is on the curve with this y; x = p is the same number, unreduced.
    let y_of_zero = unhex("66485c780e2f83d72433bd5d84a06bb6541c2af31dae871728bf856a174f93f4");
    let mut zero_x = vec![4; 1];
    zero_x.extend([0; 32]);
    zero_x.extend(&y_of_zero);
    assert!(
        PublicKey::parse(&zero_x).is_ok(),
        "the case needs a valid root"
    );
    let mut points = vec![
        ("off the curve", with(&|bytes| bytes[64] ^= 1)),
        ("x off the curve", with(&|bytes| bytes[32] ^= 1)),
        ("infinity as zeros", PublicKey([0; 65])),
        ("zero coordinates", with(&|bytes| bytes[1..].fill(0))),
        ("all ones", with(&|bytes| bytes[1..].fill(0xFF))),
        (
            "x not below the prime",
            with(&|bytes| {
                bytes[1..33].copy_from_slice(&p);
                bytes[33..].copy_from_slice(&y_of_zero);
            }),
        ),
        (
            "y is the prime",
            with(&|bytes| bytes[33..].copy_from_slice(&p)),
        ),
    ];
    for prefix in (0..=u8::MAX).filter(|prefix| *prefix != 4) {
        points.push(("another prefix", with(&|bytes| bytes[0] = prefix)));
    }
    points
}

const RFC_6979_PUBLIC: &str = concat!(
    "04",
    "60fed4ba255a9d31c961eb74c6356d68c049b8923b61fa6ce669622e60f29fb6",
    "7903fe1008b8bc99a41ae9e95628bc64f2f1b20c2d7e9f5177a3c294d4462299",
);
const RFC_6979_SAMPLE: &str = concat!(
    "efd48b2aacb6a8fd1140dd9cd45e81d69d2c877b56aaf991c34d0ea84eaf3716",
    "f7cb1c942d657c41d436c7a1b6e29f65f3e900dbb9aff4064dc4ab2f843acda8",
);

/// Key, nonce, AAD, plaintext, ciphertext, tag.
const GCM: [[&str; 6]; 6] = [
    [
        ZEROS,
        ZERO_IV,
        "",
        "",
        "",
        "58e2fccefa7e3061367f1d57a4e7455a",
    ],
    [
        ZEROS,
        ZERO_IV,
        "",
        ZEROS,
        "0388dace60b6a392f328c2b971b2fe78",
        "ab6e47d42cec13bdf53a67b21257bddf",
    ],
    [
        KEY_4,
        IV,
        AAD,
        PLAIN,
        concat!(
            "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e",
            "21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091",
        ),
        "5bc94fbc3221a5db94fae95ae7121a47",
    ],
    [
        ZERO_KEY,
        ZERO_IV,
        "",
        "",
        "",
        "530f8afbc74536b9a963b4f1c4cb738b",
    ],
    [
        ZERO_KEY,
        ZERO_IV,
        "",
        ZEROS,
        "cea7403d4d606b6e074ec5d3baf39d18",
        "d0d1c8a799996bf0265b98b5d48ab919",
    ],
    [
        KEY_16,
        IV,
        AAD,
        PLAIN,
        concat!(
            "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa",
            "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662",
        ),
        "76fc6ece0f4e1768cddf8853bb2d551b",
    ],
];
const KEY_4: &str = "feffe9928665731c6d6a8f9467308308";
const KEY_16: &str = "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308";
const IV: &str = "cafebabefacedbaddecaf888";
const AAD: &str = "feedfacedeadbeeffeedfacedeadbeefabaddad2";
const PLAIN: &str = concat!(
    "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72",
    "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
);
const ZEROS: &str = "00000000000000000000000000000000";
const ZERO_IV: &str = "000000000000000000000000";
const ZERO_KEY: &str = concat!(
    "00000000000000000000000000000000",
    "00000000000000000000000000000000"
);
