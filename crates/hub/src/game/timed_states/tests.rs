use proptest::prelude::*;
use wire::NodeId;

use super::*;

/// The five states of a village that others may raid: online or not, and free, protected or raided.
/// An online player cannot be raided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Village {
    online: Option<NodeId>,
    mode: Mode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Free,
    Protected,
    Raided,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Login(NodeId),
    Logout(NodeId),
    Raid,
    /// The raid ends, with protection for a time.
    RaidOver(Duration),
    /// Gives up protection.
    Attack,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    AlreadyOnline,
    OtherNode,
    Online,
    Raided,
    Protected,
    NotRaided,
}

struct RaidRules;

const RAID: Duration = Duration::from_secs(300);

impl Rules for RaidRules {
    type State = Village;
    type Event = Event;
    type Refusal = Refusal;

    fn on_event(
        &self,
        now: Instant,
        current: &Timed<Village>,
        event: &Event,
    ) -> Result<Timed<Village>, Refusal> {
        let Village { online, mode } = current.state;
        let deadline = current.deadline;
        let with = |online, mode, deadline| {
            let state = Village { online, mode };
            Ok(Timed { state, deadline })
        };
        match (event, mode) {
            (Event::Login(_), _) if online.is_some() => Err(Refusal::AlreadyOnline),
            (Event::Login(_), Mode::Raided) => Err(Refusal::Raided),
            (Event::Login(node), _) => with(Some(*node), mode, deadline),
            (Event::Logout(node), _) if online != Some(*node) => Err(Refusal::OtherNode),
            (Event::Logout(_), _) => with(None, mode, deadline),
            (Event::Raid, _) if online.is_some() => Err(Refusal::Online),
            (Event::Raid, Mode::Protected) => Err(Refusal::Protected),
            (Event::Raid, Mode::Raided) => Err(Refusal::Raided),
            (Event::Raid, Mode::Free) => with(None, Mode::Raided, Some(now + RAID)),
            (Event::RaidOver(shield), Mode::Raided) => {
                with(None, Mode::Protected, Some(now + *shield))
            }
            (Event::RaidOver(_), _) => Err(Refusal::NotRaided),
            (Event::Attack, Mode::Protected) => with(online, Mode::Free, None),
            (Event::Attack, _) => with(online, mode, deadline),
        }
    }

    fn on_deadline(&self, _at: Instant, ended: &Village) -> Timed<Village> {
        Timed::lasting(Village {
            online: ended.online,
            mode: Mode::Free,
        })
    }
}

fn village(online: Option<NodeId>, mode: Mode) -> Village {
    Village { online, mode }
}

fn machine(config: TimedStatesConfig, players: u64) -> TimedStates<RaidRules> {
    let mut states = TimedStates::new(config, RaidRules);
    for player in 0..players {
        let state = Timed::lasting(village(None, Mode::Free));
        states.insert(ClientId(player), state).unwrap();
    }
    states
}

fn drain<R: Rules>(states: &mut TimedStates<R>) -> Vec<Change<R::State>> {
    std::iter::from_fn(|| states.poll_event()).collect()
}

fn secs(secs: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(secs)
}

const NODE: NodeId = NodeId([1; 32]);
const OTHER: NodeId = NodeId([2; 32]);
const PLAYER: ClientId = ClientId(0);

#[test]
fn h10_a_raid_ends_by_itself_after_300_s_and_refuses_logins_until_then() {
    let mut states = machine(TimedStatesConfig::default(), 1);
    states.apply(secs(10), PLAYER, &Event::Raid).unwrap();
    assert_eq!(states.poll_timeout(), Some(secs(310)));
    let login = states.apply(secs(309), PLAYER, &Event::Login(NODE));
    assert_eq!(login, Err(ApplyError::Refused(Refusal::Raided)));
    let raid = states.apply(secs(309), PLAYER, &Event::Raid);
    assert_eq!(raid, Err(ApplyError::Refused(Refusal::Raided)));
    states.handle_timeout(secs(309));
    assert_eq!(
        drain(&mut states).len(),
        1,
        "before the deadline nothing changes"
    );
    states.handle_timeout(secs(310));
    let ended = Change {
        player: PLAYER,
        from: village(None, Mode::Raided),
        to: village(None, Mode::Free),
        cause: ChangeCause::Deadline,
    };
    assert_eq!(drain(&mut states), [ended]);
    assert_eq!(states.poll_timeout(), None);
    states
        .apply(secs(310), PLAYER, &Event::Login(NODE))
        .unwrap();
    let twice = states.apply(secs(311), PLAYER, &Event::Login(OTHER));
    assert_eq!(twice, Err(ApplyError::Refused(Refusal::AlreadyOnline)));
    let raid = states.apply(secs(312), PLAYER, &Event::Raid);
    assert_eq!(raid, Err(ApplyError::Refused(Refusal::Online)));
}

#[test]
fn h10_protection_lasts_until_its_deadline_online_and_offline() {
    let mut states = machine(TimedStatesConfig::default(), 1);
    states.apply(secs(0), PLAYER, &Event::Raid).unwrap();
    let shield = Event::RaidOver(Duration::from_secs(600));
    states.apply(secs(100), PLAYER, &shield).unwrap();
    assert_eq!(
        states.poll_timeout(),
        Some(secs(700)),
        "the raid's deadline is gone"
    );
    let raid = states.apply(secs(150), PLAYER, &Event::Raid);
    assert_eq!(raid, Err(ApplyError::Refused(Refusal::Protected)));
    let state = states
        .apply(secs(200), PLAYER, &Event::Login(NODE))
        .unwrap();
    let expected = Timed::until(village(Some(NODE), Mode::Protected), secs(700));
    assert_eq!(*state, expected);
    let stale = states.apply(secs(250), PLAYER, &Event::Logout(OTHER));
    assert_eq!(stale, Err(ApplyError::Refused(Refusal::OtherNode)));
    states.handle_timeout(secs(700));
    let last = drain(&mut states).pop().unwrap();
    assert_eq!(last.to, village(Some(NODE), Mode::Free));
    assert_eq!(last.cause, ChangeCause::Deadline);
    // Giving up protection ends it before its deadline.
    let protected = village(Some(NODE), Mode::Protected);
    let protected = Timed::until(protected, secs(900));
    states.insert(PLAYER, protected).unwrap();
    states.apply(secs(800), PLAYER, &Event::Attack).unwrap();
    assert_eq!(states.poll_timeout(), None);
}

#[test]
fn h10_the_loss_of_a_node_sets_its_players_offline_and_no_others() {
    let mut states = machine(TimedStatesConfig::default(), 10);
    for player in 0..10 {
        let node = if player < 4 { NODE } else { OTHER };
        let login = Event::Login(node);
        states.apply(secs(1), ClientId(player), &login).unwrap();
    }
    drain(&mut states);
    let of_node = states
        .iter()
        .filter(|(_, it)| it.state.online == Some(NODE));
    let lost: Vec<_> = of_node.map(|(player, _)| player).collect();
    for player in &lost {
        states
            .apply(secs(2), *player, &Event::Logout(NODE))
            .unwrap();
    }
    assert_eq!(lost, (0..4).map(ClientId).collect::<Vec<_>>());
    assert_eq!(drain(&mut states).len(), 4);
    let online = states.iter().filter(|(_, it)| it.state.online.is_some());
    assert_eq!(online.count(), 6);
    states.apply(secs(3), PLAYER, &Event::Login(OTHER)).unwrap();
}

#[test]
fn h10_a_saved_state_keeps_its_deadline_over_a_restart() {
    let mut states = machine(TimedStatesConfig::default(), 2);
    states.apply(secs(50), PLAYER, &Event::Raid).unwrap();
    let unix = UnixTime::from_secs(1_800_000_000);
    let saved = states.save(secs(60), unix, PLAYER).unwrap();
    let free = states.save(secs(60), unix, ClientId(1)).unwrap();
    assert_eq!(saved.deadline, Some(unix + Duration::from_secs(290)));
    assert_eq!(free.deadline, None);
    assert_eq!(states.save(secs(60), unix, ClientId(9)), None);
    // After 100 s, a process with another clock.
    let mut restarted = machine(TimedStatesConfig::default(), 0);
    let later = unix + Duration::from_secs(100);
    restarted
        .restore(secs(5), later, PLAYER, saved.clone())
        .unwrap();
    assert_eq!(restarted.poll_timeout(), Some(secs(195)));
    // After an hour the raid is over.
    let later = unix + Duration::from_secs(3_600);
    restarted.restore(secs(6), later, PLAYER, saved).unwrap();
    restarted.handle_timeout(secs(6));
    let changes = drain(&mut restarted);
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0].to, village(None, Mode::Free));
}

#[test]
fn h10_an_event_after_a_missed_deadline_finds_the_state_after_it() {
    let mut states = machine(TimedStatesConfig::default(), 1);
    states.apply(secs(0), PLAYER, &Event::Raid).unwrap();
    // No timeout was handled.
    states
        .apply(secs(301), PLAYER, &Event::Login(NODE))
        .unwrap();
    let causes: Vec<_> = drain(&mut states).iter().map(|it| it.cause).collect();
    let expected = [
        ChangeCause::Event,
        ChangeCause::Deadline,
        ChangeCause::Event,
    ];
    assert_eq!(causes, expected);
}

#[test]
fn gonet_h14_an_event_for_an_unknown_player_is_an_error() {
    let mut states = machine(TimedStatesConfig::default(), 1);
    let unknown = states.apply(secs(0), ClientId(5), &Event::Raid);
    assert_eq!(unknown, Err(ApplyError::Unknown));
    states.apply(secs(0), PLAYER, &Event::Raid).unwrap();
    // A deadline of a removed player has no effect.
    assert!(states.remove(PLAYER).is_some());
    assert!(states.remove(PLAYER).is_none());
    assert_eq!(states.poll_timeout(), None);
    states.handle_timeout(secs(1_000));
    assert_eq!(drain(&mut states).len(), 1, "the raid's beginning only");
    assert!(states.is_empty());
}

#[test]
fn h10_players_and_changes_are_bounded() {
    let config = TimedStatesConfig {
        players_max: 100,
        events_max: 10,
    };
    let mut states = machine(config, 100);
    let one_more = Timed::lasting(village(None, Mode::Free));
    let full = states.insert(ClientId(100), one_more.clone());
    assert_eq!(full, Err(PlayersFull));
    assert_eq!(states.insert(PLAYER, one_more), Ok(()));
    assert_eq!(states.len(), 100);
    for player in 0..100 {
        let result = states.apply(secs(0), ClientId(player), &Event::Raid);
        assert_eq!(result.is_ok(), player < 10);
        assert!(player < 10 || result == Err(ApplyError::Busy));
    }
    drain(&mut states);
    for player in 10..100 {
        states
            .apply(secs(0), ClientId(player), &Event::Raid)
            .unwrap();
        drain(&mut states);
    }
    // A hundred deadlines at once, and room for ten changes: all take effect, each once.
    states.handle_timeout(secs(300));
    assert_eq!(states.events.len(), 10);
    let changes = drain(&mut states);
    assert_eq!(changes.len(), 100);
    assert_eq!(states.events.capacity().max(16), 16);
    assert_eq!(states.poll_timeout(), None);
}

/// States that end as soon as they begin.
struct Restless;

impl Rules for Restless {
    type State = u64;
    type Event = ();
    type Refusal = ();

    fn on_event(&self, now: Instant, current: &Timed<u64>, (): &()) -> Result<Timed<u64>, ()> {
        Ok(Timed::until(current.state + 1, now))
    }

    fn on_deadline(&self, at: Instant, ended: &u64) -> Timed<u64> {
        Timed::until(ended + 1, at)
    }
}

#[test]
fn h10_states_that_end_at_once_do_not_loop() {
    let mut states = TimedStates::new(TimedStatesConfig::default(), Restless);
    states.insert(PLAYER, Timed::until(0, secs(1))).unwrap();
    states.handle_timeout(secs(100));
    assert_eq!(drain(&mut states).len(), CHAIN_MAX);
    assert!(states.poll_timeout().unwrap() > secs(100));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Against a model that looks at every player in every second.
    #[test]
    fn h10_agrees_with_a_model_that_visits_each_player_each_second(
        steps in prop::collection::vec((0_u64..400, 0_u64..6, 0_u8..5), 1..100),
    ) {
        let mut states = machine(TimedStatesConfig::default(), 5);
        let mut model = vec![Timed::lasting(village(None, Mode::Free)); 5];
        let mut now = 0;
        for (wait, player, event) in steps {
            for second in now..=now + wait {
                for state in &mut model {
                    if state.deadline.is_some_and(|it| it <= secs(second)) {
                        *state = RaidRules.on_deadline(secs(second), &state.state);
                    }
                }
            }
            now += wait;
            let event = match event {
                0 => Event::Login(NODE),
                1 => Event::Logout(NODE),
                2 => Event::Raid,
                3 => Event::RaidOver(Duration::from_secs(200)),
                _ => Event::Attack,
            };
            let place = usize::try_from(player).unwrap();
            let expected = model.get_mut(place).ok_or(ApplyError::Unknown).and_then(|current| {
                *current = RaidRules.on_event(secs(now), current, &event).map_err(ApplyError::Refused)?;
                Ok(current.clone())
            });
            let result = states.apply(secs(now), ClientId(player), &event).cloned();
            prop_assert_eq!(result, expected);
            if now % 3 == 0 {
                states.handle_timeout(secs(now));
                prop_assert!(states.iter().map(|(_, it)| it).eq(&model));
            }
            drain(&mut states);
        }
    }
}
