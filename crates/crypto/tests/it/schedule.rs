//! The whole key schedule against vectors that another implementation computed from the
//! specification.

use crypto::{Aead, Initial, Label, OpeningKey, Provider, Role, Secret32, Suite, hkdf};

use crate::vectors::{Vectors, unhex, unhex_array};

crate::for_each_provider!(
    twp_k11_the_schedule_matches_its_vectors,
    twp_k11_the_open_schedule_matches_its_vectors,
    twp_k11_both_ends_reach_the_same_keys,
    hkdf_matches_rfc_5869,
    every_input_changes_every_key,
    expand_is_hkdf_with_lengths_in_its_info,
);

fn twp_k11_the_schedule_matches_its_vectors<P: Provider>(provider: &mut P) {
    check(
        provider,
        &Vectors::parse(include_str!("../../testdata/key_schedule.hex")),
    );
}

fn twp_k11_the_open_schedule_matches_its_vectors<P: Provider>(provider: &mut P) {
    check(
        provider,
        &Vectors::parse(include_str!("../../testdata/key_schedule_open.hex")),
    );
}

fn check<P: Provider>(provider: &P, vectors: &Vectors) {
    let psk = vectors
        .try_get("psk")
        .map(|psk| Secret32::new(psk.try_into().unwrap()));
    let (th0, th1) = transcripts(provider);
    assert_eq!(th0, vectors.array("th0"));
    assert_eq!(th1, vectors.array("th1"));

    let initial = Initial::new(provider, psk.as_ref());
    let hello_mac = initial.hello_mac(provider, &[b"hello", b" bytes"]);
    assert_eq!(hello_mac, vectors.array("hello_mac"));
    let refuse_mac = initial.refuse_mac(provider, &[b"refuse bytes"]);
    assert_eq!(refuse_mac, vectors.array("refuse_mac"));

    for suite in Suite::ALL {
        let agreed = initial.agree(provider, &Secret32::new(vectors.array("shared")));
        let mut body = *b"accept body";
        let mut tag = [0; 16];
        let key = agreed.accept_key(provider, suite, &th0);
        key.seal(b"accept head", &mut body, &mut tag);
        let code = suite.code();
        assert_eq!(join(&body, &tag), vectors.get(&format!("accept_{code}")));
        let key = agreed.accept_key(provider, suite, &th0);
        key.open(b"accept head", &mut body, &tag).unwrap();
        assert_eq!(&body, b"accept body");

        let secrets = agreed.traffic(provider, &th1);
        let link = secrets.exporter.expand(provider, LINK, &[1]);
        assert_eq!(link.expose(), &vectors.array("link"));
        for (name, traffic) in [("client", secrets.client), ("server", secrets.server)] {
            let opening = [
                traffic.opening_key(provider, suite),
                traffic.next(provider).opening_key(provider, suite),
            ];
            // Number 2^33 + 5 in each phase, from two counters, because one direction uses it only
            // once.
            let mut sealing = traffic.into_sealing_key_from(provider, suite, NUMBER - 1);
            sealing.skip().unwrap();
            let sealed = vectors.get(&format!("{name}_{code}_0"));
            open_packet(&opening[0], sealed);
            assert_eq!(sealing.next_number(), NUMBER);
            let (mut body, mut tag) = (*b"packet body", [0; 16]);
            let number = sealing.seal(b"packet head", &mut body, &mut tag);
            assert_eq!(number, Ok(NUMBER));
            assert_eq!(join(&body, &tag), sealed);

            open_packet(&opening[1], vectors.get(&format!("{name}_{code}_1")));
            sealing.update(provider);
            let (mut body, mut tag) = (*b"packet body", [0; 16]);
            let number = sealing.seal(b"packet head", &mut body, &mut tag).unwrap();
            assert_eq!(number, NUMBER + 1, "an update does not set numbers back");
            opening[1]
                .open(number, b"packet head", &mut body, &tag)
                .unwrap();
            assert_eq!(&body, b"packet body");
        }
    }
}

fn open_packet<A: Aead>(key: &OpeningKey<A>, sealed: &[u8]) {
    let (body, tag) = sealed.split_last_chunk::<16>().unwrap();
    let mut body = body.to_vec();
    key.open(NUMBER, b"packet head", &mut body, tag).unwrap();
    assert_eq!(body, b"packet body");
}

fn twp_k11_both_ends_reach_the_same_keys<P: Provider>(provider: &mut P) {
    let (mut dialler, ce) = provider.ephemeral(Role::Dialler).unwrap();
    let (mut accepter, se) = provider.ephemeral(Role::Accepter).unwrap();
    let psk = Secret32::new([3; 32]);
    let (_, th1) = transcripts(provider);
    let at_dialler = {
        let shared = provider.agree(&mut dialler, &se).unwrap();
        let agreed = Initial::new(provider, Some(&psk)).agree(provider, &shared);
        agreed.traffic(provider, &th1).split(Role::Dialler)
    };
    let at_accepter = {
        let shared = provider.agree(&mut accepter, &ce).unwrap();
        let agreed = Initial::new(provider, Some(&psk)).agree(provider, &shared);
        agreed.traffic(provider, &th1).split(Role::Accepter)
    };
    assert_eq!(
        at_dialler.2.expand(provider, LINK, b"context"),
        at_accepter.2.expand(provider, LINK, b"context"),
    );
    for (from, to) in [(at_dialler.0, at_accepter.1), (at_accepter.0, at_dialler.1)] {
        let opening = to.opening_key(provider, Suite::Aes128Gcm);
        let mut sealing = from.into_sealing_key(provider, Suite::Aes128Gcm);
        let (mut body, mut tag) = (*b"to the other end", [0; 16]);
        let number = sealing.seal(&[], &mut body, &mut tag).unwrap();
        assert_eq!(number, 0);
        opening.open(number, &[], &mut body, &tag).unwrap();
        assert_eq!(&body, b"to the other end");
    }
}

/// RFC 5869, appendix A.1 to A.3.
fn hkdf_matches_rfc_5869<P: Provider>(provider: &mut P) {
    let salt = unhex("000102030405060708090a0b0c");
    let secret = hkdf::extract(provider, &salt, &[0x0b; 22]);
    assert_eq!(
        secret.expose(),
        &unhex_array("077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5"),
    );
    let info = unhex("f0f1f2f3f4f5f6f7f8f9");
    assert_eq!(
        hkdf::expand::<_, 42>(provider, &secret, &info).to_vec(),
        unhex(concat!(
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf",
            "34007208d5b887185865",
        )),
    );

    let range = |from: u8, to: u8| (from..=to).collect::<Vec<_>>();
    let secret = hkdf::extract(provider, &range(0x60, 0xaf), &range(0x00, 0x4f));
    assert_eq!(
        secret.expose(),
        &unhex_array("06a6b88c5853361a06104c9ceb35b45cef760014904671014a193f40c15fc244"),
    );
    assert_eq!(
        hkdf::expand::<_, 82>(provider, &secret, &range(0xb0, 0xff)).to_vec(),
        unhex(concat!(
            "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c",
            "59045a99cac7827271cb41c65e590e09da3275600c2f09b8367793a9aca3db71",
            "cc30c58179ec3e87c14c01d5c1f3434f1d87",
        )),
    );

    let secret = hkdf::extract(provider, &[], &[0x0b; 22]);
    assert_eq!(
        hkdf::expand::<_, 42>(provider, &secret, &[]).to_vec(),
        unhex(concat!(
            "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d",
            "9d201395faa4b61a96c8",
        )),
    );
}

fn every_input_changes_every_key<P: Provider>(provider: &mut P) {
    let (th0, th1) = transcripts(provider);
    let keys = |psk: Option<[u8; 32]>, shared: u8, th1: &[u8; 32]| {
        let initial = Initial::new(provider, psk.map(Secret32::new).as_ref());
        let agreed = initial.agree(provider, &Secret32::new([shared; 32]));
        let secrets = agreed.traffic(provider, th1);
        [
            &secrets.client,
            &secrets.server,
            &secrets.client.next(provider),
        ]
        .map(|traffic| {
            // Sealing zeros gives the key stream.
            [0_u64, 1].map(|number| {
                let (aead, iv) = traffic.expand(provider, Suite::Aes256Gcm);
                let (mut stream, mut tag) = ([0; 16], [0; 16]);
                aead.seal(iv.nonce(number), &[], &mut stream, &mut tag);
                stream
            })
        })
    };
    let streams: Vec<_> = [
        keys(None, 1, &th1),
        keys(Some([1; 32]), 1, &th1),
        keys(Some([1; 32]), 2, &th1),
        keys(Some([1; 32]), 1, &th0),
    ]
    .into_iter()
    .flatten()
    .flatten()
    .collect();
    let mut distinct = streams.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), streams.len());
    assert_eq!(
        keys(None, 1, &th1),
        keys(Some([0; 32]), 1, &th1),
        "open mode is 32 zero bytes"
    );
}

fn expand_is_hkdf_with_lengths_in_its_info<P: Provider>(provider: &mut P) {
    use crypto::key_schedule::{expand, expand_key};
    let secret = Secret32::new([9; 32]);
    let whole = expand(provider, &secret, LINK, &[7; 3]);
    let info = b"\x00\x20\x08tw1 link\x03\x07\x07\x07";
    assert_eq!(whole.expose(), &hkdf::expand(provider, &secret, info));

    let short = expand_key(provider, &secret, LINK, &[7; 3], Suite::Aes128Gcm);
    let info = b"\x00\x10\x08tw1 link\x03\x07\x07\x07";
    let bytes: [u8; 16] = hkdf::expand(provider, &secret, info);
    assert_eq!(short.expose().split_at(16), (&bytes[..], &[0; 16][..]));
}

fn transcripts<P: Provider>(provider: &P) -> ([u8; 32], [u8; 32]) {
    let ramp = |len: usize, step: usize| -> Vec<u8> {
        (0..len)
            .map(|i| u8::try_from(i * step % 256).unwrap())
            .collect()
    };
    let (hello, accept) = (ramp(1_200, 7), ramp(211, 11));
    (
        provider.sha256(&[&hello, &accept[..90]]),
        provider.sha256(&[&hello, &accept]),
    )
}

fn join(body: &[u8], tag: &[u8; 16]) -> Vec<u8> {
    [body, tag].concat()
}

const LINK: Label = Label::new("tw1 link");
const NUMBER: u64 = (1 << 33) + 5;
