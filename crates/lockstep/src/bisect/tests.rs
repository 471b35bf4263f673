use super::*;
use crate::input::Width;
use crate::message;
use crate::message::{decode_up, write_acknowledged, write_sections, write_ticks};

const NAMES: [&str; 4] = ["random", "units", "shots", "score"];

/// Interval at which an unanswered question is repeated.
const WAIT: u64 = 130_000_000;

/// A player that diverges in section `section` from tick `from` on. An index past the last section
/// means its log.
fn hashes(from: u32, section: usize, ticks: impl Iterator<Item = u32>) -> HashHistory {
    let mut hash_history = HashHistory::new(1_024);
    for tick in ticks {
        let is_wrong = tick >= from;
        let sections = NAMES.into_iter().zip(tick..).enumerate();
        let sections = sections.map(|(index, (name, hash))| {
            let is_wrong = is_wrong && index >= section;
            (name, if is_wrong { !hash } else { hash })
        });
        let report = if is_wrong { !tick } else { tick };
        let log = if is_wrong && section == NAMES.len() {
            !tick
        } else {
            tick
        };
        hash_history.push(Tick(tick), (report, log), sections);
    }
    hash_history
}

/// Players by seat, each with its hash history; seat 0 diverges. The server has none.
struct Search {
    bisect: DesyncBisect,
    players: Vec<HashHistory>,
    now: Instant,
    asked: Vec<(Seat, Question)>,
    found: Vec<Found>,
    silent: Vec<Seat>,
}

impl Search {
    /// Seat 0 is suspected for `tick`; any of `first..=tick` may differ.
    fn new(players: Vec<HashHistory>, first: u32, tick: u32) -> Self {
        let report = |seat: usize| players[seat].get(Tick(tick)).unwrap().report;
        let witnesses = (1..players.len()).map(|seat| Witness {
            seat: Some(Seat(u16::try_from(seat).unwrap())),
            report: report(seat),
            first: Tick(first),
        });
        let suspicion = DesyncReport {
            seat: Seat(0),
            report: report(0),
            tick: Tick(tick),
            witnesses: witnesses.collect(),
        };
        let mut search = Self {
            bisect: DesyncBisect::new(1_024, u8::MAX),
            players,
            now: Instant::from_millis(1),
            asked: Vec::new(),
            found: Vec::new(),
            silent: Vec::new(),
        };
        search.bisect.begin(suspicion, search.deadline());
        search
    }

    fn deadline(&self) -> Instant {
        self.now + core::time::Duration::from_secs(4)
    }

    /// Delivers all due questions, and their answers.
    fn exchange(&mut self) {
        while let Some((seat, question)) = self.bisect.poll_question(self.now) {
            self.asked.push((seat, question));
            if !self.silent.contains(&seat) {
                let hash_history = &self.players[usize::from(seat.0)];
                let datagram = answer(hash_history, question);
                assert!(self.answer(seat, &datagram), "{question:?}");
            }
        }
        while let Some(found) = self.bisect.poll_found() {
            self.found.push(found);
        }
    }

    /// Delivers an answer from `seat`; returns whether it was accepted.
    fn answer(&mut self, seat: Seat, datagram: &[u8]) -> bool {
        let Ok(message::Up::Answer(answer)) = decode_up(datagram, Width::bits::<8>()) else {
            panic!("no answer: {datagram:?}");
        };
        self.bisect.on_answer(seat, &answer, self.deadline())
    }

    fn pass(&mut self, millis: u64) {
        self.now += core::time::Duration::from_millis(millis);
        let deadline = self.deadline();
        self.bisect.on_tick(self.now, deadline, |_| WAIT);
        self.exchange();
    }

    /// Results: tick, cause, and name of the section.
    fn results(&self) -> Vec<(u32, Cause, Option<String>)> {
        let name = |found: &Found| found.section.map(|section| section.name.to_string());
        let found = self.found.iter();
        found
            .map(|found| (found.tick.0, found.cause, name(found)))
            .collect()
    }
}

fn answer(hash_history: &HashHistory, question: Question) -> Vec<u8> {
    let mut out = Vec::new();
    match question {
        Question::Ticks { first_low, count } => {
            let at = (Some(Tick(first_low.into())), first_low);
            write_ticks(&mut out, hash_history, at, count);
        }
        Question::Sections { tick_low } => {
            let entry = hash_history.get(Tick(tick_low.into()));
            write_sections(&mut out, (tick_low, 1_100), entry, &hash_history.names);
        }
        Question::Diverged { tick_low, seat, .. } => write_acknowledged(&mut out, tick_low, seat),
    }
    out
}

fn right(ticks: core::ops::Range<u32>) -> HashHistory {
    hashes(u32::MAX, 0, ticks)
}

#[test]
fn a_tick_that_is_known_takes_one_question_each() {
    let mut search = Search::new(vec![hashes(50, 1, 0..60), right(0..60)], 50, 50);
    search.exchange();
    let units = Some("units".to_owned());
    assert_eq!(search.results(), [(50, Cause::State, units)]);
    let sections = Question::Sections { tick_low: 50 };
    assert_eq!(
        search.asked[..2],
        [(Seat(0), sections), (Seat(1), sections)]
    );
    // Both players are notified.
    assert_eq!(search.asked.len(), 4);
    assert_eq!((search.bisect.inquiries.len(), search.found.len()), (0, 1));
}

#[test]
fn ticks_between_hash_steps_take_two_questions_each() {
    for from in 41..=50 {
        let players = vec![hashes(from, 3, 0..60), right(0..60)];
        let mut search = Search::new(players, 41, 50);
        search.exchange();
        let score = Some("score".to_owned());
        assert_eq!(search.results(), [(from, Cause::State, score)]);
        let (first_low, count) = (41, 10);
        let ticks = Question::Ticks { first_low, count };
        assert_eq!(search.asked[..2], [(Seat(0), ticks), (Seat(1), ticks)]);
        assert_eq!(search.asked.len(), 6);
    }
}

#[test]
fn old_ticks_are_searched_255_at_a_time() {
    for (from, windows) in [(1_000, 1), (747, 1), (746, 2), (745, 2), (100, 4), (3, 4)] {
        let players = vec![hashes(from, 0, 0..1_001), right(0..1_001)];
        let mut search = Search::new(players, 1, 1_000);
        search.exchange();
        let random = Some("random".to_owned());
        assert_eq!(search.results(), [(from, Cause::State, random)]);
        let is_ticks =
            |(_, question): &&(Seat, Question)| matches!(question, Question::Ticks { .. });
        let asked = search.asked.iter().filter(is_ticks).count();
        assert_eq!(asked, 2 * windows, "{from}");
    }
}

#[test]
fn unreported_ticks_are_skipped() {
    // Every seventh tick was reported; of the newest window only the last.
    let some = |from| {
        hashes(
            from,
            1,
            (0..=980)
                .step_by(7)
                .filter(|tick| *tick < 600 || *tick == 980),
        )
    };
    let mut search = Search::new(vec![some(580), some(u32::MAX)], 1, 980);
    search.exchange();
    let units = Some("units".to_owned());
    assert_eq!(search.results(), [(581, Cause::State, units)]);
    // Only the tick of the hash step was reported.
    let last = |from| hashes(from, 1, 980..=980);
    let mut search = Search::new(vec![last(580), last(u32::MAX)], 1, 980);
    search.exchange();
    let units = Some("units".to_owned());
    assert_eq!(search.results(), [(980, Cause::State, units)]);
}

#[test]
fn different_inputs_are_distinguished_from_different_states() {
    let mut search = Search::new(vec![hashes(45, 4, 0..60), right(0..60)], 41, 50);
    search.exchange();
    assert_eq!(search.results(), [(45, Cause::Inputs, None)]);
}

#[test]
fn a_game_without_sections_has_its_tick_named() {
    let bare = |from| {
        let mut hash_history = HashHistory::new(1_024);
        for tick in 0..60 {
            let report = if tick >= from { !tick } else { tick };
            hash_history.push(Tick(tick), (report, tick), core::iter::empty());
        }
        hash_history
    };
    let mut search = Search::new(vec![bare(45), bare(u32::MAX)], 41, 50);
    search.exchange();
    assert_eq!(search.results(), [(45, Cause::State, None)]);
}

#[test]
fn a_section_that_only_one_peer_has_is_named() {
    let fewer = hashes(u32::MAX, 0, 0..60);
    let mut more = HashHistory::new(1_024);
    for tick in 0..60 {
        let names = NAMES.into_iter().chain(["ghosts"]);
        more.push(Tick(tick), (!tick, tick), names.zip(tick..));
    }
    let mut search = Search::new(vec![more, fewer], 50, 50);
    search.exchange();
    let ghosts = Some("ghosts".to_owned());
    assert_eq!(search.results(), [(50, Cause::State, ghosts)]);
}

#[test]
fn the_server_itself_is_not_asked() {
    let players = vec![hashes(45, 1, 0..60)];
    let mut search = Search::new(players, 41, 50);
    search.bisect.own = right(0..60);
    let suspicion = DesyncReport {
        seat: Seat(0),
        report: !50,
        tick: Tick(50),
        witnesses: vec![Witness {
            seat: None,
            report: 50,
            first: Tick(41),
        }],
    };
    let deadline = search.deadline();
    // Replaces the search that `new` began, because it has no witness to ask.
    search.bisect.begin(suspicion, deadline);
    search.exchange();
    assert_eq!(search.found[1].against, None);
    let units = Some("units".to_owned());
    assert_eq!(search.results()[1..], [(45, Cause::State, units)]);
    assert!(search.asked.iter().all(|(seat, _)| *seat == Seat(0)));
    assert_eq!(search.asked.len(), 3);
    assert!(search.bisect.inquiries.is_empty());
}

#[test]
fn questions_are_repeated_when_an_answer_takes_too_long() {
    let mut search = Search::new(vec![hashes(50, 1, 0..60), right(0..60)], 50, 50);
    search.silent = vec![Seat(0), Seat(1)];
    search.exchange();
    assert_eq!(search.asked.len(), 2);
    search.pass(129);
    assert_eq!(search.asked.len(), 2, "not before an answer can be there");
    search.pass(1);
    assert_eq!(search.asked.len(), 4);
    // One player answers; only the other is asked again.
    let sections = Question::Sections { tick_low: 50 };
    let datagram = answer(&search.players[1], sections);
    assert!(search.answer(Seat(1), &datagram));
    assert!(!search.answer(Seat(1), &datagram), "a second copy");
    search.pass(130);
    assert_eq!(search.asked[4..], [(Seat(0), sections)]);
}

#[test]
fn a_witness_that_does_not_answer_is_replaced() {
    let players = vec![hashes(45, 1, 0..60), right(0..60), right(0..60)];
    let mut search = Search::new(players, 41, 50);
    search.silent = vec![Seat(1)];
    search.exchange();
    while search.found.is_empty() {
        search.pass(16);
    }
    let units = Some("units".to_owned());
    assert_eq!(search.results(), [(45, Cause::State, units)]);
    assert_eq!(search.found[0].against, Some(Seat(2)));
    assert!(
        search.now <= Instant::from_millis(4_100),
        "{:?}",
        search.now
    );
}

#[test]
fn a_witness_that_no_longer_has_the_tick_is_replaced() {
    let players = vec![hashes(50, 1, 0..60), right(0..60), right(0..60)];
    let mut search = Search::new(players, 50, 50);
    search.players[1] = HashHistory::new(0);
    search.exchange();
    let units = Some("units".to_owned());
    assert_eq!(search.results(), [(50, Cause::State, units)]);
    assert_eq!(search.found[0].against, Some(Seat(2)));
    // No player has the hash.
    let mut search = Search::new(vec![hashes(50, 1, 0..60), right(0..60)], 50, 50);
    search.players[1] = HashHistory::new(0);
    search.exchange();
    assert_eq!(search.results(), [(50, Cause::Unknown, None)]);
}

#[test]
fn a_peer_that_never_answers_is_abandoned_in_bounded_time() {
    // Silent: the player; all witnesses; all players once the tick is known.
    for (silent, limit) in [(&[0][..], 4), (&[1, 2, 3], 12), (&[0, 1, 2, 3], 4)] {
        let players = vec![
            hashes(45, 1, 0..60),
            right(0..60),
            right(0..60),
            right(0..60),
        ];
        let mut search = Search::new(players, 41, 50);
        search.silent = silent.iter().copied().map(Seat).collect();
        search.exchange();
        while search.found.is_empty() {
            search.pass(16);
        }
        assert_eq!(search.results(), [(50, Cause::Unknown, None)]);
        let millis = search.now.as_millis();
        assert!(millis <= limit * 1_000 + 200, "{silent:?}: {millis}");
        // A notification without an acknowledgement times out as well.
        while !search.bisect.inquiries.is_empty() {
            search.pass(16);
        }
        assert!(search.now.as_millis() <= millis + 4_100);
        assert!(search.asked.len() <= 31 * 2 * 4, "{}", search.asked.len());
        assert_eq!(search.found.len(), 1);
    }
}

#[test]
fn a_found_tick_is_reported_even_without_its_sections() {
    let mut search = Search::new(vec![hashes(45, 1, 0..60), right(0..60)], 41, 50);
    let (first_low, count) = (41, 10);
    search.silent = vec![Seat(0), Seat(1)];
    search.exchange();
    for seat in [0, 1] {
        let question = Question::Ticks { first_low, count };
        let datagram = answer(&search.players[usize::from(seat)], question);
        assert!(search.answer(Seat(seat), &datagram));
    }
    while search.found.is_empty() {
        search.pass(16);
    }
    assert_eq!(search.results(), [(45, Cause::Unknown, None)]);
}

#[test]
fn unasked_or_contradictory_answers_change_nothing() {
    let mut search = Search::new(
        vec![hashes(45, 1, 0..60), right(0..60), right(0..60)],
        41,
        50,
    );
    search.silent = vec![Seat(0), Seat(1)];
    search.exchange();
    let (first_low, count) = (41, 10);
    let ticks = Question::Ticks { first_low, count };
    let truth = answer(&search.players[0], ticks);
    // Rejected answers: from a player that was not asked; for another range; for a later stage;
    // contradicting the report.
    assert!(!search.answer(Seat(2), &truth));
    let first_low = 40;
    let elsewhere = answer(&search.players[0], Question::Ticks { first_low, count });
    assert!(!search.answer(Seat(0), &elsewhere));
    let sections = answer(&search.players[0], Question::Sections { tick_low: 45 });
    assert!(!search.answer(Seat(0), &sections));
    let (tick_low, seat) = (50, Seat(0));
    let mut acknowledged = Vec::new();
    write_acknowledged(&mut acknowledged, tick_low, seat);
    assert!(!search.answer(Seat(0), &acknowledged));
    let lie = answer(&search.players[1], ticks);
    assert!(
        !search.answer(Seat(0), &lie),
        "it reported something else of tick 50"
    );
    let mut nothing = Vec::new();
    write_ticks(&mut nothing, &right(0..1), (Some(Tick(41)), 41), 10);
    assert!(!search.answer(Seat(0), &nothing), "it reported something");
    assert!(search.answer(Seat(0), &truth));
    assert!(search.answer(Seat(1), &lie), "who says so truly");
    search.silent.clear();
    search.exchange();
    let units = Some("units".to_owned());
    assert_eq!(search.results(), [(45, Cause::State, units)]);
}

#[test]
fn a_leaving_player_is_not_waited_for() {
    // The player leaves: the known result is reported.
    let three = || vec![hashes(45, 1, 0..60), right(0..60), right(0..60)];
    let mut search = Search::new(three(), 41, 50);
    search.bisect.on_left(Seat(0), search.deadline());
    search.silent = vec![Seat(0)];
    search.exchange();
    assert_eq!(search.results(), [(50, Cause::Unknown, None)]);
    assert!(search.bisect.inquiries.is_empty(), "the witness was told");
    // A witness leaves while there is another one.
    let mut search = Search::new(three(), 41, 50);
    search.bisect.on_left(Seat(1), search.deadline());
    search.silent = vec![Seat(1)];
    search.exchange();
    assert_eq!(search.found[0].against, Some(Seat(2)));
    assert_eq!(search.found[0].cause, Cause::State);
    // All witnesses leave.
    let mut search = Search::new(three(), 41, 50);
    search.bisect.on_left(Seat(2), search.deadline());
    search.bisect.on_left(Seat(1), search.deadline());
    search.exchange();
    assert_eq!(search.results(), [(50, Cause::Unknown, None)]);
    assert!(search.bisect.inquiries.is_empty());
    // Both leave before they are notified.
    let mut search = Search::new(three(), 50, 50);
    search.bisect.on_left(Seat(0), search.deadline());
    search.bisect.on_left(Seat(1), search.deadline());
    assert!(search.bisect.inquiries.is_empty());
    assert_eq!(search.bisect.poll_question(search.now), None);
}

#[test]
fn a_state_loaded_during_the_search_ends_it() {
    let mut search = Search::new(vec![hashes(45, 1, 0..60), right(0..60)], 41, 50);
    assert!(search.bisect.reload_after(Seat(0)));
    assert!(
        !search.bisect.reload_after(Seat(1)),
        "nobody searches there"
    );
    search.silent = vec![Seat(0)];
    search.exchange();
    while search.found.is_empty() {
        search.pass(16);
    }
    assert!(search.found[0].then_reload, "also where nothing was found");
    assert!(!search.bisect.reload_after(Seat(0)), "it is told already");
}

#[test]
fn memory_is_bounded_by_what_two_answers_can_hold() {
    let mut most = HashHistory::new(1_024);
    for tick in 0..60 {
        let names = NAMES.into_iter().cycle().take(64);
        most.push(Tick(tick), (!tick, tick), names.zip(0..));
    }
    let mut search = Search::new(vec![most, right(0..60)], 50, 50);
    search.silent = vec![Seat(0), Seat(1)];
    search.exchange();
    let before = search.bisect.memory_len();
    let datagram = answer(&search.players[0], Question::Sections { tick_low: 50 });
    assert!(search.answer(Seat(0), &datagram));
    let held = search.bisect.memory_len() - before;
    assert!((64 * 36..=64 * 40).contains(&held), "{held}");
    while !search.bisect.inquiries.is_empty() {
        search.pass(16);
    }
    let found = search.bisect.found.capacity() * size_of::<Found>();
    assert!(search.bisect.memory_len() <= before + found);
}
