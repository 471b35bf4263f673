//! The exact cost of each rejected HELLO; hashes are counted as in `flood`.

use crypto::Secret32;
use netsim::provider::{Counting, Counts, SimProvider};
use udp_proto::{Config, Credentials, Network};
use wire::Seed;

use crate::direct::{Party, START, UNIX};
use crate::harness::{Keys, SERVER, address};
use crate::rogue::Rogue;

/// Three with tokens, one in open mode, and three with network secrets: an unknown one, the
/// previous and the current.
fn rogues(keys: &mut Keys) -> Vec<Rogue> {
    (0..7_u8)
        .map(|number| {
            let index = u64::from(number);
            if number < 3 {
                return Rogue::new(index, &keys.token(UNIX, index, address(SERVER)));
            }
            let mut rogue = Rogue::new(index, &Credentials::Open);
            rogue.psk = (number > 3).then(|| Secret32::new([number + 1; 32]));
            rogue
        })
        .collect()
}

/// The maximum cost of each rejection in docs/protocol.md, section 9: each HELLO has a cookie and
/// the id of a pending attempt, so both are checked.
#[test]
fn twp_f1_each_refusal_costs_the_hashes_that_the_protocol_states() {
    let seed = Seed::from_number(4);
    let (mut keys, counts) = (Keys::new(seed), Counts::default());
    let provider = Counting::new(SimProvider::new(seed), &counts);
    let mut config = Config::default();
    config.sessions_max = 1;
    let mut server = Party::server(config, &keys, provider, |listen| {
        listen.with_open_mode().with_network(Network {
            secret: Secret32::new([7; 32]),
            previous: Some(Secret32::new([6; 32])),
        })
    });
    let from = address("203.0.113.1:1");
    let mut rogues = rogues(&mut keys);
    server.take(START, from, &rogues[0].hello);
    assert_eq!(server.drain(START)[0].bytes[0], 0xC3, "the only slot");
    let known: [u8; 8] = rogues[0].hello[17..25].try_into().unwrap();
    let mut cost = |hello: &[u8]| {
        let before = counts.now();
        server.take(START, from, hello);
        let answer = server.drain(START).pop().map(|sent| sent.bytes);
        let spent = counts.now() - before;
        assert_eq!(spent.elliptic_curve(), 0);
        (spent.hash(), answer)
    };
    for rogue in &mut rogues[1..] {
        rogue.hello[17..25].copy_from_slice(&known);
        rogue.sign();
    }
    for rogue in &mut rogues[3..] {
        if let (_, Some(retry)) = cost(&rogue.hello)
            && retry[0] == 0xC2
        {
            rogue.follow(&retry);
        }
    }
    // A forged cookie: it is still checked.
    let altered = |index: usize, byte: usize| {
        let mut hello = rogues[index].hello.clone();
        hello[101] = 32;
        hello[byte] ^= 1;
        hello
    };
    for (name, hello, hashes, answer) in [
        ("wrong cookie", altered(3, 120), 3, Some(0xC2)),
        ("token that does not open", altered(1, 200), 3, Some(0xC4)),
        ("wrong PSK mac", altered(2, 140), 7, None),
        (
            "wrong network secret, two tried",
            rogues[4].hello.clone(),
            10,
            None,
        ),
        (
            "peer, previous secret, full",
            rogues[5].hello.clone(),
            12,
            Some(0xC4),
        ),
        ("peer, full", rogues[6].hello.clone(), 8, Some(0xC4)),
        ("token, full", altered(1, 120), 9, Some(0xC4)),
        ("open, full", rogues[3].hello.clone(), 4, Some(0xC4)),
    ] {
        let (spent, got) = cost(&hello);
        assert_eq!(
            (spent, got.map(|bytes| bytes[0])),
            (hashes, answer),
            "{name}"
        );
    }
}
