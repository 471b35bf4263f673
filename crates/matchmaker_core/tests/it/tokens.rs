//! Tokens: which server can open which, until when, and that each is unique.

use std::collections::BTreeSet;

use core::time::Duration;
use crypto::{ClientGrant, TokenError, TokenKey};
use matchmaker_core::record::{RefuseReason, Reply};
use matchmaker_core::{Config, ReissueError, TokenLifetime};
use wire::{ClientId, UnixTime};

use crate::harness::{APP, Harness, Server, UNIX, secs};

#[test]
fn mm_6_a_token_opens_at_its_instance_and_names_its_seat() {
    let (mut server, other) = (Server::new(1, 8), Server::new(2, 0));
    let mut harness = Harness::new(Config::default(), (2, 2), &[&server, &other]);
    server.join(&mut harness);
    other.join(&mut harness);
    let tickets = harness.play(10..14, &mut server);
    for (ticket, client) in tickets.iter().zip(10..) {
        let seat = harness.assignment(*ticket);
        let opened = server.open(seat.grant.expose(), UNIX + secs(2)).unwrap();
        assert_eq!(opened.grant.client_id, ClientId(client));
        assert_eq!(opened.grant.server_id, server.link.instance);
        assert_eq!(opened.grant.match_id, seat.match_id);
        assert_eq!(
            (opened.grant.seat, opened.grant.team),
            (seat.seat, seat.team)
        );
        assert_eq!(opened.grant.expires_at, seat.expires_at);
        let grant = ClientGrant::from_text(seat.grant.expose()).unwrap();
        assert_eq!((grant.app_id, grant.psk), (APP, opened.grant.psk));
        assert_eq!(grant.server_keys, server.identity_keys);
        assert_eq!(grant.addresses, server.record().addresses);

        // Neither another server nor the next run of this one opens it.
        let restarted = Server::run(1, 8, 1);
        for other_server in [&other, &restarted] {
            let refused = other_server.open(seat.grant.expose(), UNIX + secs(2));
            assert_eq!(refused, Err(TokenError::Forged));
        }
    }
}

#[test]
fn mm_6_a_token_ends() {
    let mut config = Config::default();
    config.token_lifetime = TokenLifetime::new(secs(300)).unwrap();
    let mut server = Server::new(1, 8);
    let mut harness = Harness::new(config, (1, 1), &[&server]);
    server.join(&mut harness);
    let ticket = harness.play(0..1, &mut server)[0];
    let grant = harness.assignment(ticket).grant.clone();
    // Issued 2 seconds after the clock was set. 5 seconds of skew are allowed.
    let open = |after: u64| server.open(grant.expose(), UNIX + secs(after)).map(|_| ());
    assert_eq!((open(2), open(306)), (Ok(()), Ok(())));
    assert_eq!(open(307), Err(TokenError::Expired));
}

#[test]
fn repeated_polls_return_the_same_grant_and_a_reissue_another() {
    let mut server = Server::new(1, 8);
    let mut harness = Harness::new(Config::default(), (1, 1), &[&server]);
    server.join(&mut harness);
    let ticket = harness.play(0..1, &mut server)[0];
    let first = harness.assignment(ticket).clone();
    assert_eq!(harness.assignment(ticket), &first);
    let soon = harness.machine.reissue(harness.now, ticket);
    assert_eq!(soon, Err(ReissueError::TooSoon(secs(5))));
    harness.pass(secs(5));
    harness.machine.reissue(harness.now, ticket).unwrap();
    let second = harness.assignment(ticket).clone();
    assert_eq!((second.match_id, second.seat), (first.match_id, first.seat));
    let [old, new] = [&first, &second].map(|seat| {
        let now = UNIX + secs(7);
        server.open(seat.grant.expose(), now).unwrap()
    });
    assert_ne!(old.header.token_id, new.header.token_id);
    assert_ne!(old.grant.psk, new.grant.psk);
    assert!(new.grant.issued_at > old.grant.issued_at);
    let waiting = harness.submit(5);
    harness.drain();
    assert_eq!(
        harness.machine.reissue(harness.now, waiting),
        Err(ReissueError::NotAssigned)
    );
    let unknown = matchmaker_core::TicketId(waiting.0 ^ 1);
    assert_eq!(
        harness.machine.reissue(harness.now, unknown),
        Err(ReissueError::Unknown)
    );
}

#[test]
fn no_token_is_made_twice() {
    let mut server = Server::new(1, 64);
    let mut harness = Harness::new(Config::default(), (2, 1), &[&server]);
    server.join(&mut harness);
    let mut seen = (BTreeSet::new(), BTreeSet::new());
    for first in (0..60).step_by(2) {
        for ticket in harness.play(first..first + 2, &mut server) {
            let token = server.open(harness.assignment(ticket).grant.expose(), UNIX + secs(2));
            let token = token.unwrap();
            assert!(seen.0.insert(token.header.token_id));
            assert!(seen.1.insert(*token.grant.psk.expose()));
        }
    }
    assert_eq!(harness.machine.stats().tokens, 60);
}

#[test]
fn mm_7_a_new_key_replaces_the_old_one_for_good() {
    let mut server = Server::new(1, 8);
    let mut harness = Harness::new(Config::default(), (1, 1), &[&server]);
    server.join(&mut harness);
    let before = harness.play(0..1, &mut server)[0];
    let old = server.key.clone();
    server.key = TokenKey::generate(&mut server.provider, 2).unwrap();
    server.join(&mut harness);
    // It registers again unchanged, and its matches still exist.
    server.join(&mut harness);
    let after = harness.play(1..2, &mut server)[0];
    let opened = server.open(harness.assignment(after).grant.expose(), UNIX + secs(2));
    assert_eq!(opened.unwrap().header.key_id, 2);
    // Tokens sealed before open with the old key, which the server keeps besides the new one.
    let new = core::mem::replace(&mut server.key, old);
    server
        .open(harness.assignment(before).grant.expose(), UNIX + secs(2))
        .unwrap();
    assert_eq!(
        server.register(&mut harness),
        Reply::Refused(RefuseReason::OldKey)
    );
    let mut changed = *new.to_bytes();
    changed[35] ^= 1;
    server.key = TokenKey::from_bytes(&changed);
    assert_eq!(
        server.register(&mut harness),
        Reply::Refused(RefuseReason::OldKey)
    );
}

#[test]
fn a_wall_clock_that_jumps_changes_tokens_and_nothing_else() {
    let mut server = Server::new(1, 8);
    let mut harness = Harness::new(Config::default(), (1, 1), &[&server]);
    server.join(&mut harness);
    let ticket = harness.play(0..1, &mut server)[0];
    let waiting = harness.machine.poll_timeout();
    let day = secs(86_400);
    for unix in [
        UNIX + day,
        UnixTime::from_millis(UNIX.as_millis() - 86_400_000),
    ] {
        harness.machine.set_unix_time(harness.now, unix);
        harness.drain();
        assert_eq!(harness.machine.poll_timeout(), waiting);
        harness.pass(secs(5));
        harness.machine.reissue(harness.now, ticket).unwrap();
        let grant = &harness.assignment(ticket).grant;
        server.open(grant.expose(), unix + secs(5)).unwrap();
    }
    // After a small backward step, a newer token still has a later time.
    let issued = |harness: &Harness| {
        let seat = harness.assignment(ticket);
        UnixTime::from_millis(seat.expires_at.as_millis() - 60_000)
    };
    let before = issued(&harness);
    harness.pass(secs(5));
    harness.machine.set_unix_time(harness.now, before);
    harness.machine.reissue(harness.now, ticket).unwrap();
    let grant = harness.assignment(ticket).grant.clone();
    let opened = server.open(grant.expose(), before + secs(1)).unwrap();
    assert!(opened.grant.issued_at > before);
    assert!(opened.grant.issued_at <= before + Duration::from_secs(1));
}

#[test]
fn user_data_reaches_the_token() {
    let mut server = Server::new(1, 8);
    let mut harness = Harness::new(Config::default(), (1, 1), &[&server]);
    server.join(&mut harness);
    let user = crypto::UserData::new(&[7; 512]).unwrap();
    let request = matchmaker_core::TicketRequest::new(ClientId(1)).with_user(user.clone());
    let ticket = harness
        .machine
        .submit(harness.now, &request)
        .unwrap()
        .ticket;
    harness.serve(&mut [&mut server]);
    let opened = server.open(harness.assignment(ticket).grant.expose(), UNIX + secs(2));
    assert_eq!(opened.unwrap().grant.user, user);
}
