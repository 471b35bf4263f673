//! Leases over a real hub: registration, adoption, end.

use std::time::Duration;

use crypto::{Ring, TokenKey};
use daemon::link::{LeaseConfig, LeaseEnd};
use matchmaker_core::TokenLifetime;

use crate::http::{about, assigned, submit};
use crate::net::{Net, PATIENCE, quick, until};
use crate::server::{Server, ServerObservation};

#[test]
fn without_a_matchmaker_a_server_ends() {
    let mut net = Net::new();
    let _hub = net.hub();
    let mut config = LeaseConfig::default();
    config.boot_timeout = Duration::from_millis(500);
    let mut server = Server::start_with(&net, "server-0", config);
    assert_eq!(server.next(), ServerObservation::Ended(LeaseEnd::Expired));
    assert_eq!(server.link.wait_end(PATIENCE), Some(LeaseEnd::Expired));
}

#[test]
fn a_server_ends_if_its_matchmaker_does_not_return() {
    let mut net = Net::new();
    let _hub = net.hub();
    let mut config = quick();
    config.lease = Duration::from_secs(3);
    let matchmaker = net.matchmaker_with(None, config, crate::net::edge());
    let mut server = Server::start(&net, "server-0");
    assert_eq!(server.next(), ServerObservation::Registered);
    drop(matchmaker);
    assert_eq!(server.next(), ServerObservation::Ended(LeaseEnd::Expired));
}

#[test]
fn mm_4_a_restarted_matchmaker_adopts_the_match() {
    let mut net = Net::new();
    let _hub = net.hub();
    let matchmaker = net.matchmaker(None);
    let mut server = Server::start(&net, "server-0");
    let players = [1, 2].map(|client| submit(matchmaker.address(), client));
    for held in &players {
        assigned(matchmaker.address(), held);
    }
    let before = server.next_match();
    server.link.entered(before.match_id).unwrap();
    drop(matchmaker);

    let matchmaker = net.matchmaker(None);
    server.wait_for(&ServerObservation::Registered);
    let edge = matchmaker.address();
    about(edge, "GET", &players[0], "").assert_refused(404, "unknown_ticket");
    let again = assigned(edge, &submit(edge, 2));
    assert_eq!(again.text("match_id"), before.match_id.to_string());
    let token = server.open(again.text("grant")).unwrap();
    assert_eq!(token.grant.client_id.0, 2);
}

#[test]
fn only_matches_that_no_player_entered_are_released() {
    let mut net = Net::new();
    let _hub = net.hub();
    let mut config = quick();
    config.token_lifetime = TokenLifetime::new(Duration::from_secs(1)).unwrap();
    config.call_timeout = Duration::from_secs(1);
    let matchmaker = net.matchmaker_with(None, config, crate::net::edge());
    let edge = matchmaker.address();
    let mut server = Server::start(&net, "server-0");
    server.wait_for(&ServerObservation::Registered);
    let players = [1, 2].map(|client| submit(edge, client));
    let ghosts = [3, 4].map(|client| submit(edge, client));
    let entered = assigned(edge, &players[0]);
    let match_id = entered.text("match_id").to_owned();
    assigned(edge, &ghosts[0]);
    let (first, second) = (server.next_match(), server.next_match());
    let [entered, left] = if first.match_id.to_string() == match_id {
        [first.match_id, second.match_id]
    } else {
        [second.match_id, first.match_id]
    };
    server.link.entered(entered).unwrap();
    server.wait_for(&ServerObservation::Released(left));
    let ended = about(edge, "GET", &ghosts[1], "");
    assert_eq!(ended.text("reason"), "not_entered");
    assert_eq!(
        about(edge, "GET", &players[1], "").text("state"),
        "assigned"
    );
}

#[test]
fn a_match_continues_while_the_hub_is_down_beyond_the_lease() {
    let mut net = Net::new();
    let hub = net.hub_process();
    let mut config = quick();
    config.lease = Duration::from_secs(2);
    let matchmaker = net.matchmaker_with(None, config, crate::net::edge());
    let edge = matchmaker.address();
    let mut server = Server::start(&net, "server-0");
    server.wait_for(&ServerObservation::Registered);
    let players = [1, 2].map(|client| submit(edge, client));
    let seat = assigned(edge, &players[0]);
    let played = server.next_match().match_id;
    server.link.entered(played).unwrap();
    hub.kill();
    server.wait_for(&ServerObservation::CutOff);
    // After another lease time the match still runs on both sides.
    assert_eq!(server.link.wait_end(Duration::from_secs(3)), None);
    let now = about(edge, "GET", &players[1], "");
    assert_eq!(now.text("state"), "assigned");
    let _hub = net.hub_process();
    server.wait_for(&ServerObservation::Registered);
    let now = about(edge, "GET", &players[0], "");
    assert_eq!(now.text("match_id"), seat.text("match_id"));
    server.link.finished(played, b"won".to_vec()).unwrap();
    until("the match has ended", || {
        let answer = about(edge, "GET", &players[0], "");
        (answer.text("reason") == "finished").then_some(())
    });
}

#[test]
fn a_server_registers_again_when_the_hub_returns() {
    let mut net = Net::new();
    let hub = net.hub_process();
    let matchmaker = net.matchmaker(None);
    let mut server = Server::start(&net, "server-0");
    server.wait_for(&ServerObservation::Registered);
    hub.kill();
    let _hub = net.hub_process();
    server.wait_for(&ServerObservation::Registered);
    let edge = matchmaker.address();
    let players = [1, 2].map(|client| submit(edge, client));
    let seat = assigned(edge, &players[0]);
    assert!(server.open(seat.text("grant")).is_ok());
}

#[test]
fn mm_7_a_new_token_key_replaces_the_old_one() {
    let mut net = Net::new();
    let _hub = net.hub();
    let matchmaker = net.matchmaker(None);
    let mut server = Server::start(&net, "server-0");
    server.wait_for(&ServerObservation::Registered);
    let old = server.key.clone();
    server.key = TokenKey::generate(&mut Ring::new(), 2).unwrap();
    server.link.set_token_key(server.key.clone()).unwrap();
    server.wait_for(&ServerObservation::Registered);
    let edge = matchmaker.address();
    let players = [1, 2].map(|client| submit(edge, client));
    let seat = assigned(edge, &players[0]);
    assert!(server.open(seat.text("grant")).is_ok());
    let instance = server.instance;
    assert!(crate::server::open(&old, instance, seat.text("grant")).is_err());
}

#[test]
fn mm_7_the_link_rotates_keys_and_the_matchmaker_follows() {
    let mut net = Net::new();
    let _hub = net.hub();
    let matchmaker = net.matchmaker(None);
    let mut config = LeaseConfig::default();
    config.key_rotation = Duration::from_millis(500);
    let mut server = Server::start_with(&net, "server-0", config);
    server.wait_for(&ServerObservation::TokenKey(2));
    server.wait_for(&ServerObservation::Registered);
    let edge = matchmaker.address();
    let players = [1, 2].map(|client| submit(edge, client));
    let seat = assigned(edge, &players[0]);
    let grant = seat.text("grant");
    let keys = server.keys.lock().unwrap().clone();
    // The previous key is used until its tokens expire, so there is no third one.
    assert_eq!(keys.len(), 1);
    assert!(crate::server::open(&keys[0], server.instance, grant).is_ok());
    assert!(server.open(grant).is_err(), "sealed under the old key");
}

#[test]
fn a_second_run_of_a_server_replaces_the_first() {
    let mut net = Net::new();
    let _hub = net.hub();
    let _matchmaker = net.matchmaker(None);
    let mut first = Server::start(&net, "server-0");
    first.wait_for(&ServerObservation::Registered);
    let mut second = Server::start(&net, "server-0");
    second.wait_for(&ServerObservation::Registered);
    let ServerObservation::Ended(end) = first.next() else {
        panic!("the first still runs");
    };
    assert!(
        matches!(end, LeaseEnd::Superseded | LeaseEnd::Retired),
        "{end:?}"
    );
}

#[test]
fn a_server_that_leaves_is_removed_at_once() {
    let mut net = Net::new();
    let _hub = net.hub();
    let matchmaker = net.matchmaker(None);
    let mut server = Server::start(&net, "server-0");
    server.wait_for(&ServerObservation::Registered);
    let edge = matchmaker.address();
    let status = crate::http::ask(edge, "GET /v1/status", &[], "");
    assert_eq!(
        (status.json["servers"].as_u64(), status.text("hub")),
        (Some(1), "up")
    );
    server.link.shutdown(PATIENCE);
    let status = crate::http::ask(edge, "GET /v1/status", &[], "");
    assert_eq!(status.json["servers"].as_u64(), Some(0));
}
