//! Repeated, excessive and invalid HELLOs: what each costs a server, and which open a session.

use core::net::SocketAddr;
use core::time::Duration;

use crypto::Secret32;
use netsim::provider::{Counting, Counts, SimProvider};
use udp_proto::{CloseCode, Config, Credentials, DuplicatePolicy, Listen};
use wire::{Instant, Seed, UnixTime};

use crate::direct::{CLIENT, Line, Party, START, UNIX, again};
use crate::harness::{Keys, SERVER, address};
use crate::hostile::unknown_address;
use crate::rogue::{Rogue, confirm, no_point};

/// A server with counted crypto calls, and a hand-written client's HELLO for it.
fn counted(number: u64, config: Config) -> (Party<Counting<SimProvider>>, Keys, Counts) {
    let seed = Seed::from_number(number);
    let (keys, counts) = (Keys::new(seed), Counts::default());
    let provider = Counting::new(SimProvider::new(seed), &counts);
    let server = Party::server(config, &keys, provider, Listen::with_open_mode);
    (server, keys, counts)
}

fn answer<P: crypto::Provider>(
    server: &mut Party<P>,
    now: Instant,
    from: SocketAddr,
    bytes: &[u8],
) -> Option<Vec<u8>> {
    server.take(now, from, bytes);
    let mut sent = server.drain(now);
    assert!(sent.len() <= 1, "one reply for each datagram");
    let sent = sent.pop()?;
    assert_eq!(sent.to, from);
    Some(sent.bytes)
}

#[test]
fn twp_k8_a_repeated_hello_gets_the_same_accept_for_no_further_work() {
    let (mut server, mut keys, counts) = counted(10, Config::default());
    let mut rogue = Rogue::new(1, &keys.token(UNIX, 1, address(SERVER)));
    let before = counts.now();
    let accept = answer(&mut server, START, address(CLIENT), &rogue.hello).unwrap();
    assert_eq!(accept[0], 0xC3);
    for _ in 0..5 {
        let again = answer(&mut server, START, address(CLIENT), &rogue.hello).unwrap();
        assert_eq!(again, accept);
    }
    // From another address a cookie is needed; then the answer is the same.
    let retry = answer(&mut server, START, unknown_address(1), &rogue.hello).unwrap();
    assert_eq!((retry[0], retry.len()), (0xC2, 45));
    rogue.follow(&retry);
    for _ in 0..2 {
        let again = answer(&mut server, START, unknown_address(1), &rogue.hello).unwrap();
        assert_eq!(again, accept);
    }
    let calls = counts.now() - before;
    assert_eq!((calls.ephemeral, calls.agree, calls.sign), (1, 1, 1));
    assert_eq!(calls.elliptic_curve(), 3);
    assert_eq!(server.machine.session_count(), 1);
}

#[test]
fn twp_k5_rejected_hellos_cost_no_curve_operation_and_no_slot() {
    let (mut server, mut keys, counts) = counted(11, Config::default());
    let token = keys.token(UNIX, 1, address(SERVER));
    let Credentials::Token { token: sealed, psk } = again(&token) else {
        panic!("a token");
    };
    let mut no_tag = sealed.clone();
    *no_tag.last_mut().unwrap() ^= 1;
    let with = |token: &[u8], psk: &Secret32| Credentials::Token {
        token: token.to_vec(),
        psk: psk.clone(),
    };
    let mut old = Rogue::new(4, &Credentials::Open);
    let retry = answer(&mut server, START, address(CLIENT), &old.hello).unwrap();
    old.follow(&retry);
    let mut wrong_cookie = Rogue::new(5, &Credentials::Open);
    wrong_cookie.follow(&retry);
    let hellos = [
        Rogue::new(1, &with(&no_tag, &psk)).hello,
        Rogue::new(2, &with(&sealed, &Secret32::new([1; 32]))).hello,
        Rogue::new(3, &Credentials::Open).hello,
        wrong_cookie.hello,
        old.hello,
    ];
    let before = counts.now();
    // The cookie is 11 s old by now.
    let now = START + Duration::from_secs(11);
    for hello in &hellos {
        for source in 0..50 {
            answer(&mut server, now, unknown_address(source << 8), hello);
        }
    }
    assert_eq!((counts.now() - before).elliptic_curve(), 0);
    assert_eq!(server.machine.session_count(), 0);
    assert_eq!(server.machine.stats().dropped_token, 50);
    assert_eq!(server.machine.stats().dropped_psk, 50);
}

/// A token allows four attempts at a time. A fifth, tenth or thirtieth spends nothing of the shared
/// budget: an eighth per network is 12 at once.
#[test]
fn twp_k5_a_rejected_attempt_uses_no_budget() {
    let (mut server, mut keys, counts) = counted(26, Config::default());
    let greedy = keys.token(UNIX, 1, address(SERVER));
    let accepted = (0..40).filter(|number| {
        let rogue = Rogue::new(*number, &greedy);
        answer(&mut server, START, address(CLIENT), &rogue.hello).is_some()
    });
    assert_eq!(accepted.count(), 4);
    assert_eq!(server.machine.stats().dropped_token_used, 36);
    assert_eq!(counts.now().sign, 4);
    let neighbour = Rogue::new(100, &keys.token(UNIX, 2, address(SERVER)));
    let accept = answer(&mut server, START, address(CLIENT), &neighbour.hello);
    assert_eq!(accept.map(|bytes| bytes[0]), Some(0xC3));
    assert_eq!(server.machine.stats().dropped_accept_budget, 0);
}

#[test]
fn twp_k5_a_replayed_hello_adds_nothing_and_its_owner_connects() {
    let mut line = Line::new(12);
    let credentials = line.token(1);
    let session = line.client.dial(line.now, &line.keys, credentials);
    let hello = line.client.drain(line.now).remove(0).bytes;
    // The attacker is first, from one address, and then from a hundred more.
    for source in 0..100 {
        line.server
            .take(line.now, unknown_address(source << 8), &hello);
    }
    line.server.drain(line.now);
    assert_eq!(line.server.machine.session_count(), 1);
    assert_eq!(line.server.machine.stats().accepted, 1);
    // The owner is asked for a cookie once and connects.
    line.server.take(line.now, line.client.at, &hello);
    line.settle();
    assert_eq!(line.client.sessions(), [session]);
    assert_eq!(line.server.machine.stats().accepted, 1);
    // After that the token opens nothing.
    for source in 0..100 {
        line.server
            .take(line.now, unknown_address(source << 8), &hello);
    }
    line.server.take(line.now, line.client.at, &hello);
    assert_eq!(line.server.machine.stats().dropped_token_used, 101);
    assert_eq!(line.server.machine.session_count(), 1);
}

#[test]
fn a_key_that_is_no_curve_point_costs_one_check_and_no_slot() {
    let (mut server, mut keys, _) = counted(13, Config::default());
    let token = keys.token(UNIX, 1, address(SERVER));
    for number in 0..6 {
        let rogue = Rogue::with(number, &token, |hello| hello.client_ephemeral = no_point());
        assert_eq!(
            answer(&mut server, START, address(CLIENT), &rogue.hello),
            None
        );
    }
    assert_eq!(server.machine.stats().dropped_bad_point, 6);
    assert_eq!(server.machine.session_count(), 0);
    // The token's four attempts were returned.
    let good = Rogue::new(9, &token);
    assert!(answer(&mut server, START, address(CLIENT), &good.hello).is_some());
}

/// Two attempts of one player, both accepted before either opens, the newer token first; returns
/// the first packets.
fn two_attempts(config: &Config, number: u64) -> (Party, [Vec<u8>; 2]) {
    let seed = Seed::from_number(number);
    let mut keys = Keys::new(seed);
    let mut server = Party::server(config.clone(), &keys, SimProvider::new(seed), |listen| {
        listen
    });
    let packets = [5, 0].map(|age| {
        let issued = UnixTime::from_secs(1_735_689_595 + age);
        let token = keys.token(issued, 1, address(SERVER));
        let mut rogue = Rogue::new(age, &token);
        let from = unknown_address(u32::try_from(age).unwrap());
        let accept = answer(&mut server, START, from, &rogue.hello).unwrap();
        rogue.accept(&accept).packet(&confirm(config))
    });
    (server, packets)
}

#[test]
fn two_half_open_attempts_of_a_player_do_not_both_open() {
    for policy in [DuplicatePolicy::Replace, DuplicatePolicy::Reject] {
        let mut config = Config::default();
        config.duplicate = policy;
        let (mut server, [newer, older]) = two_attempts(&config, 20);
        server.take(START, unknown_address(5), &newer);
        server.take(START, unknown_address(0), &older);
        server.drain(START);
        assert_eq!(server.sessions().len(), 1);
        assert!(server.closes().is_empty(), "the newer one stays");
    }
    // In the opposite order the newer token decides, unless the policy keeps the existing session.
    for (policy, sessions) in [(DuplicatePolicy::Replace, 2), (DuplicatePolicy::Reject, 1)] {
        let mut config = Config::default();
        config.duplicate = policy;
        let (mut server, [newer, older]) = two_attempts(&config, 21);
        server.take(START, unknown_address(0), &older);
        server.take(START, unknown_address(5), &newer);
        server.drain(START);
        assert_eq!(server.sessions().len(), sessions);
        assert_eq!(server.closes().len(), sessions - 1);
    }
}

#[test]
fn a_shut_down_endpoint_accepts_no_session() {
    let (mut server, [newer, _]) = two_attempts(&Config::default(), 22);
    assert_eq!(server.machine.session_count(), 2);
    server.machine.shutdown(START);
    assert_eq!(server.machine.session_count(), 0);
    server.take(START, unknown_address(5), &newer);
    let mut keys = Keys::new(Seed::from_number(22));
    let hello = Rogue::new(7, &keys.token(UNIX, 9, address(SERVER))).hello;
    assert_eq!(answer(&mut server, START, unknown_address(9), &hello), None);
    assert_eq!(server.machine.stats().dropped_mode, 1);
    assert!(server.sessions().is_empty());
}

#[test]
fn twp_k7_a_used_token_opens_nothing_after_the_wall_clock_jumped() {
    let mut line = Line::new(23);
    let credentials = line.token(1);
    let session = line.client.dial(line.now, &line.keys, again(&credentials));
    line.settle();
    line.client
        .machine
        .close(line.now, session, CloseCode::App, b"")
        .unwrap();
    line.run(1_000);
    line.server
        .machine
        .set_unix_time(line.now, UNIX + Duration::from_secs(3_600));
    line.server.machine.set_unix_time(line.now, UNIX);
    line.client.dial(line.now, &line.keys, credentials);
    line.run(1_000);
    assert_eq!(line.server.sessions().len(), 1);
}
