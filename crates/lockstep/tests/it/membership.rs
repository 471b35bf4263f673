//! Joining, leaving, and refusals.

use core::time::Duration;

use lockstep::{
    ClientConfig, ClientEvent, ClientPeer, ClosePolicy, CloseReason, Config, ConfigError,
    InputDelay, JoinError, LeaveReason, MatchServer, Origin, PeerId, Phase, Refusal, ServerEvent,
    StartError, StartPolicy, SubmitError, Tick,
};
use wire::{Arrival, Instant, Seat, Seed};

use crate::world::{Link, MATCH, World, config, pad};

/// The datagram of a client that has the welcome and no ticks.
const READY: [u8; 6] = [0x01, 2, 0, 0, 0, 0];

fn left<I>(world: &World<I>) -> Vec<(Seat, Tick, LeaveReason)> {
    let left = world.server_events.iter().filter_map(|event| {
        if let ServerEvent::Left {
            seat, tick, reason, ..
        } = event
        {
            Some((*seat, *tick, *reason))
        } else {
            None
        }
    });
    left.collect()
}

/// From exactly `tick` on, the remaining players see `seat` absent.
fn assert_absent_from(world: &World<u16>, seat: usize, tick: Tick) {
    let from = usize::try_from(tick.0).unwrap();
    let own = &world.players[seat].own;
    assert!(
        own.iter()
            .take(from)
            .all(|(_, origin)| *origin != Origin::Absent)
    );
    let stayed = &world.players[(seat + 1) % world.players.len()];
    assert!(stayed.states.len() > from + 50, "the others play on");
}

#[test]
fn a_player_that_leaves_is_absent_from_the_next_tick_on() {
    let mut world = World::new(4, config(3), Link::lossy(10), pad);
    world.run(100);
    let now = world.now;
    world.players[1].machine.leave(now, LeaveReason::Quit);
    world.run(300);
    let left = left(&world);
    assert_eq!(left.len(), 1);
    let (seat, tick, reason) = left[0];
    assert_eq!((seat, reason), (Seat(1), LeaveReason::Quit));
    assert_absent_from(&world, 1, tick);
    assert_eq!(world.players[1].machine.poll_timeout(), None, "it is over");
    let refused = world.players[1].machine.submit(world.now, &1);
    assert_eq!(refused, Err(SubmitError::Closed));
}

#[test]
fn a_removed_player_is_notified_even_if_the_first_notice_is_lost() {
    let mut world = World::new(5, config(3), Link::lossy(10), pad);
    world.run(100);
    world
        .outages
        .push((2, world.now, world.now + Duration::from_millis(200)));
    world.server.leave(world.now, PeerId(2));
    world.server.leave(world.now, PeerId(2));
    world.run(300);
    let tick = left(&world)[0].1;
    assert_absent_from(&world, 2, tick);
    let closed = ClientEvent::Closed(CloseReason::Removed);
    assert_eq!(world.players[2].events.last(), Some(&closed));
    assert_eq!(world.players[2].machine.phase(), Phase::Closed);
}

#[test]
fn ls_9_a_client_1_024_ticks_behind_is_removed() {
    let mut world = World::new(6, config(3), Link::lossy(1), pad);
    world.run(100);
    world.players[0].is_paused = true;
    let closed = world.server.ticks_closed();
    while left(&world).is_empty() {
        world.step();
    }
    let ticks = world.server.ticks_closed() - closed;
    assert!((1_010..=1_040).contains(&ticks), "{ticks}");
    assert_eq!(left(&world)[0].2, LeaveReason::Behind);
    world.players[0].is_paused = false;
    world.run_for(Duration::from_secs(1));
    let closed = ClientEvent::Closed(CloseReason::Behind);
    assert_eq!(world.players[0].events.last(), Some(&closed));
}

#[test]
fn a_client_paused_for_ten_seconds_needs_no_snapshot() {
    let mut world = World::new(7, config(3), Link::lossy(1), pad);
    world.run(100);
    world.players[0].is_paused = true;
    world.run_for(Duration::from_secs(10));
    world.players[0].is_paused = false;
    let back = world.now;
    let closed = usize::try_from(world.server.ticks_closed()).unwrap();
    world.run_for(Duration::from_secs(3));
    let player = &world.players[0];
    let wait = player.turned_at[closed - 1].saturating_since(back);
    assert!(wait < Duration::from_millis(600), "{wait:?}");
    let tail = &player.own[player.own.len() - 60..];
    let own = tail
        .iter()
        .filter(|(_, origin)| *origin == Origin::Confirmed);
    assert!(own.count() > 50, "and plays");
    let len = player.states.len();
    assert_eq!(player.states, world.players[1].states[..len]);
}

#[test]
fn the_end_is_sent_to_all() {
    let mut world = World::new(8, config(3), Link::lossy(10), pad);
    world.run(50);
    world.server.close(world.now);
    world.server.close(world.now);
    let closed = world.server.ticks_closed();
    world.run_for(Duration::from_secs(2));
    assert_eq!(world.server.ticks_closed(), closed);
    assert_eq!(left(&world).len(), 3);
    let ended = ClientEvent::Closed(CloseReason::Ended);
    for player in &world.players {
        assert_eq!(player.events.last(), Some(&ended));
    }
    let refused = world.server.join(world.now, PeerId(50), Seat(0));
    assert_eq!(refused, Err(JoinError::Closed));
}

#[test]
fn a_seat_is_assigned_once() {
    let now = Instant::from_millis(1);
    let mut by_hand = config(2);
    by_hand.start = StartPolicy::ByHand;
    let mut server = MatchServer::<u16>::new(by_hand, MATCH, Seed::from_number(1), now).unwrap();
    assert_eq!(server.join(now, PeerId(7), Seat(1)), Ok(()));
    assert_eq!(
        server.join(now, PeerId(8), Seat(1)),
        Err(JoinError::SeatTaken)
    );
    assert_eq!(
        server.join(now, PeerId(7), Seat(0)),
        Err(JoinError::PeerTaken)
    );
    assert_eq!(
        server.join(now, PeerId(8), Seat(2)),
        Err(JoinError::NoSuchSeat)
    );
    server.leave(now, PeerId(7));
    assert_eq!(server.join(now, PeerId(7), Seat(0)), Ok(()));
    assert_eq!(server.start(now), Ok(()));
    assert_eq!(server.start(now), Err(StartError::Started));
    let later = now + Duration::from_millis(17);
    server.handle_timeout(later);
    let turn = server.poll_turn().unwrap();
    let origins: Vec<_> = turn.inputs().map(|(.., origin)| origin).collect();
    assert_eq!(origins, [Origin::Absent, Origin::Absent], "nobody is ready");
}

#[test]
fn an_impossible_match_configuration_is_refused() {
    let refused = |change: fn(&mut Config)| {
        let mut config = config(2);
        change(&mut config);
        let made = MatchServer::<u32>::new(config, MATCH, Seed::from_number(1), Instant::ZERO);
        made.err()
    };
    assert_eq!(refused(|_| {}), None);
    assert_eq!(
        refused(|config| config.seats = 0),
        Some(ConfigError::NoSeats)
    );
    let quorum = |seats| ClosePolicy::Quorum {
        seats,
        cap: Duration::from_millis(50),
    };
    let out_of_range = Some(ConfigError::QuorumOutOfRange);
    for (seats, refusal) in [(0, out_of_range), (1, None), (2, None), (3, out_of_range)] {
        let mut config = config(2);
        config.close = quorum(seats);
        let made = MatchServer::<u32>::new(config, MATCH, Seed::from_number(1), Instant::ZERO);
        assert_eq!(made.err(), refusal);
    }
    for (min, max) in [(0, 5), (5, 4), (5, 61)] {
        assert_eq!(InputDelay::adaptive(min, max), None);
    }
    assert_eq!(refused(|config| config.seats = 207), None);
    let long = Some(ConfigError::BundleTooLong);
    assert_eq!(refused(|config| config.seats = 208), long);
    assert_eq!(refused(|config| config.seats = u16::MAX), long);
    assert_eq!(refused(|config| config.datagram_len_max = 17), long);
}

#[test]
fn a_client_refuses_a_match_beyond_its_limits() {
    let now = Instant::from_millis(1);
    let refusal = |seats: u16, client: ClientConfig| {
        let mut server =
            MatchServer::<u16>::new(config(seats), MATCH, Seed::from_number(1), now).unwrap();
        server.join(now, PeerId(1), Seat(0)).unwrap();
        server.handle_timeout(now);
        let mut welcome = Vec::new();
        server.poll_transmit(now, &mut welcome).unwrap();
        let mut client = ClientPeer::<u16>::new(client, PeerId(0), Seed::from_number(2), now);
        client.handle_datagram(now, Arrival::from(PeerId(0)), &mut welcome);
        // A client of another game gets the same welcome.
        let mut other = ClientPeer::<u32>::new(
            ClientConfig::default(),
            PeerId(0),
            Seed::from_number(2),
            now,
        );
        other.handle_datagram(now, Arrival::from(PeerId(0)), &mut welcome);
        let theirs = lockstep::Width::bits::<16>();
        let width = ClientEvent::Refused(Refusal::Width { theirs });
        assert_eq!(other.poll_event(), Some(width));
        // And the server learns that it will not join.
        other.handle_timeout(now);
        let mut leave = Vec::new();
        other.poll_transmit(now, &mut leave).unwrap();
        server.handle_datagram(now, Arrival::from(PeerId(1)), &mut leave);
        let reason = LeaveReason::Refused;
        let (seat, peer, tick) = (Seat(0), PeerId(1), Tick(0));
        let left = ServerEvent::Left {
            seat,
            peer,
            tick,
            reason,
        };
        assert_eq!(server.poll_event(), Some(left));
        client.poll_event()
    };
    let welcome = |seats| {
        Some(ClientEvent::Welcome {
            seat: Seat(0),
            seats,
            match_id: MATCH,
        })
    };
    let too_large = |seats| Some(ClientEvent::Refused(Refusal::TooLarge { seats }));
    assert_eq!(refusal(64, ClientConfig::default()), welcome(64));
    assert_eq!(refusal(65, ClientConfig::default()), too_large(65));
    let mut small = ClientConfig::default();
    small.seats_max = 3;
    assert_eq!(refusal(3, small.clone()), welcome(3));
    assert_eq!(refusal(4, small), too_large(4));
    let mut narrow = ClientConfig::default();
    narrow.bundle_len_max = 20;
    assert_eq!(refusal(7, narrow.clone()), welcome(7));
    assert_eq!(refusal(8, narrow), too_large(8));
}

#[test]
fn ls_9_a_client_with_a_hanging_game_keeps_at_most_1_024_turns() {
    let mut world = World::new(9, config(2), Link::perfect(), pad);
    world.run(100);
    let read = world.players[0].states.len();
    world.players[0].is_frozen = true;
    while world.players[0].machine.stats().bundles_early == 0 {
        world.step();
    }
    let held = world.players[0].machine.ticks_confirmed();
    assert_eq!(usize::try_from(held).unwrap(), read + 1_024);
    world.players[0].is_frozen = false;
    world.run_for(Duration::from_secs(3));
    let (hung, other) = (&world.players[0], &world.players[1]);
    assert!(
        hung.states.len() + 3 > other.states.len(),
        "it has caught up"
    );
    let len = hung.states.len().min(other.states.len());
    assert_eq!(hung.states[..len], other.states[..len]);
    let is_desync = |event: &ServerEvent| matches!(event, ServerEvent::Desync { .. });
    assert!(
        !world.server_events.iter().any(is_desync),
        "no hash was mixed up"
    );
}

#[test]
fn a_player_cannot_send_close_reasons_of_the_server() {
    let mut world = World::new(10, config(2), Link::perfect(), pad);
    world.run(20);
    for code in [2, 3, 5, 6, 255] {
        let before = world.server.stats().dropped_malformed;
        let arrival = Arrival::from(PeerId(0));
        world
            .server
            .handle_datagram(world.now, arrival, &mut [0x03, code]);
        assert_eq!(world.server.stats().dropped_malformed, before + 1, "{code}");
        assert_eq!(world.server.poll_event(), None, "{code}");
    }
    // Such a reason is sent as a quit.
    world.players[0]
        .machine
        .leave(world.now, LeaveReason::Removed);
    world.run_for(Duration::from_millis(500));
    assert_eq!(left(&world).len(), 1);
    assert_eq!(left(&world)[0].2, LeaveReason::Quit);
    for reason in [
        LeaveReason::Quit,
        LeaveReason::Finished,
        LeaveReason::Refused,
    ] {
        assert!(reason.is_players());
    }
}

/// A match of three that waits 5 s, and its server's events up to `millis`; the players in
/// `ready_at` become ready at those times, player 0 at 1 s.
fn gather(ready_at: &[(u32, u64)], millis: u64) -> (MatchServer<u16>, Vec<ServerEvent>) {
    let now = Instant::from_millis(1);
    let mut config = config(3);
    config.start_timeout = Duration::from_secs(5);
    let mut server = MatchServer::<u16>::new(config, MATCH, Seed::from_number(1), now).unwrap();
    for (peer, seat) in [(PeerId(0), Seat(0)), (PeerId(1), Seat(1))] {
        server.join(now, peer, seat).unwrap();
    }
    let end = Instant::from_millis(1_000 + millis);
    let mut ready_events: Vec<_> = ready_at.to_vec();
    let (mut events, mut buf) = (Vec::new(), Vec::new());
    while let Some(now) = server
        .poll_timeout()
        .into_iter()
        .chain(
            ready_events
                .first()
                .map(|(_, at)| Instant::from_millis(*at)),
        )
        .min()
        .filter(|at| *at <= end)
    {
        if let Some((peer, at)) = ready_events.first().copied()
            && Instant::from_millis(at) <= now
        {
            server.handle_datagram(now, Arrival::from(PeerId(peer)), &mut READY.clone());
            ready_events.remove(0);
        }
        server.handle_timeout(now);
        while server.poll_transmit(now, &mut buf).is_some() {}
        events.extend(core::iter::from_fn(|| server.poll_event()));
    }
    (server, events)
}

#[test]
fn a_match_begins_without_players_that_delay_it() {
    let (server, events) = gather(&[(0, 1_000)], 4_999);
    assert_eq!(events, [ServerEvent::Ready { seat: Seat(0) }]);
    assert_eq!(server.phase(), Phase::Gathering);
    // Seat 1 is held by a silent player; seat 2 is free.
    let (mut server, events) = gather(&[(0, 1_000)], 5_100);
    let kick = ServerEvent::Left {
        seat: Seat(1),
        peer: PeerId(1),
        tick: Tick(0),
        reason: LeaveReason::NotReady,
    };
    let ready = ServerEvent::Ready { seat: Seat(0) };
    assert_eq!(events, [ready, kick, ServerEvent::Started]);
    let turn = server.poll_turn().unwrap();
    let origins: Vec<_> = turn.inputs().map(|(.., origin)| origin).collect();
    assert_eq!(
        origins,
        [Origin::Substituted, Origin::Absent, Origin::Absent]
    );
    // Later peers learn why they are not admitted.
    let now = Instant::from_millis(6_200);
    server.handle_datagram(now, Arrival::from(PeerId(1)), &mut READY.clone());
    let mut bye = Vec::new();
    while server.poll_transmit(now, &mut bye).unwrap().destination != PeerId(1) {
        bye.clear();
    }
    assert_eq!(bye, [0x84, CloseReason::NotReady.code()]);
}

#[test]
fn ticks_wait_for_no_player_while_none_waits() {
    // No player is ready, or one became ready and left: no timeout runs.
    let (mut server, events) = gather(&[], 60_000);
    assert_eq!((server.phase(), events.len()), (Phase::Gathering, 0));
    let now = Instant::from_millis(70_000);
    server.handle_datagram(now, Arrival::from(PeerId(0)), &mut READY.clone());
    server.leave(now, PeerId(0));
    server.handle_timeout(Instant::from_millis(90_000));
    assert_eq!(server.phase(), Phase::Gathering);
    // The wait restarts with the next ready player.
    let now = Instant::from_millis(100_000);
    server.handle_datagram(now, Arrival::from(PeerId(1)), &mut READY.clone());
    server.handle_timeout(Instant::from_millis(104_999));
    assert_eq!(server.phase(), Phase::Gathering);
    server.handle_timeout(Instant::from_millis(105_000));
    assert_eq!(server.phase(), Phase::Running);
}
