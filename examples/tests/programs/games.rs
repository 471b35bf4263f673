//! Examples which run in one process.

use std::process::Output;

use crate::{example, text};

fn replay(arguments: &[&str]) -> Output {
    example("replay").args(arguments).output().unwrap()
}

#[test]
fn b1_own_inputs_show_at_once_and_others_move_evenly_at_150_ms_5_percent() {
    let output = example("prediction")
        .args(["run", "--seconds=20"])
        .output()
        .unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    let last = said.lines().last().unwrap();
    assert!(
        last.starts_with("prediction: 20 s, own inputs 0 frames late, "),
        "{said}"
    );
    assert!(last.ends_with("; all agree"), "{said}");
    let corrections = last
        .split(", ")
        .find_map(|part| part.split_once(" corrections"));
    let (count, _) = corrections.unwrap();
    assert!(count.parse::<u32>().unwrap() > 0, "{said}");
    let output = example("prediction").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("Usage: prediction"));
}

/// Returns the path of a test's own file.
fn place(name: &str) -> String {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    folder.join(name).to_str().unwrap().to_owned()
}

#[test]
fn replay_records_plays_seeks_and_verifies() {
    let file = place("good.twrp");
    let output = replay(&["record", &file, "--ticks=700"]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    let (key, recorded) = said.trim().split_once('\n').unwrap();
    let key = key.strip_prefix("key ").unwrap();
    assert!(recorded.starts_with("recorded: 700 ticks, "), "{said}");
    let coins = recorded.split_once("coins ").unwrap().1;

    let output = replay(&["verify", &file, "--key", key]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    let verified =
        "verified: 700 ticks, 88 state hashes, 2 keyframes, complete, signed up to tick 700; head ";
    assert!(said.starts_with(verified), "{said}");

    let output = replay(&["play", &file, "--from=650"]);
    let played = text(&output.stdout);
    let last = played.lines().last().unwrap();
    assert!(last.starts_with("tick  699  hash "), "{played}");
    assert!(last.ends_with(&format!("coins {coins}")), "{played}");
    assert_eq!(played.lines().count(), 3, "{played}");
    // The state before the end equals the state at the end of play.
    let output = replay(&["seek", &file, "700", "--json"]);
    let sought: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&sought["schema"], &sought["steps"]),
        (&1.into(), &100.into())
    );
    assert!(last.contains(sought["hash"].as_str().unwrap()), "{sought}");

    // Another server's key, and an unused one.
    let other = place("other.twrp");
    let output = replay(&["record", &other, "--ticks=40", "--seed=2"]);
    let said = text(&output.stdout);
    let stranger = said.lines().next().unwrap().strip_prefix("key ").unwrap();
    let output = replay(&["verify", &file, "--key", stranger]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains("signature of tick 300 is not of this key"),
        "{said}"
    );
    let output = replay(&["diff", &file, &other]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout), "they are of different matches\n");
}

#[test]
fn replay_names_the_first_tick_that_differs() {
    let (good, wrong) = (place("well.twrp"), place("wrong.twrp"));
    let output = replay(&["record", &good, "--ticks=200"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let output = replay(&["record", &wrong, "--ticks=200", "--disturb-at=100"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let output = replay(&["verify", &wrong]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.starts_with("replay: tick 104 leads to "), "{said}");
    let output = replay(&["diff", &good, &wrong]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    assert_eq!(said, "equal inputs lead to different states at tick 104\n");
    let output = replay(&["diff", &good, &good]);
    assert!(output.status.success());
    assert_eq!(text(&output.stdout), "they tell the same match\n");
}

#[test]
fn replay_reports_an_unreadable_file_in_one_sentence() {
    let output = replay(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("Usage: replay"));
    let file = place("no.twrp");
    std::fs::write(&file, "no replay at all").unwrap();
    for (path, sentence) in [
        (&*file, "it is no replay\n"),
        ("nowhere.twrp", "(os error 2)\n"),
    ] {
        for command in ["verify", "play"] {
            let output = replay(&[command, path]);
            assert_eq!(output.status.code(), Some(1), "{path}");
            let said = text(&output.stderr);
            assert!(said.starts_with(&format!("replay: {path}: ")), "{said}");
            assert!(said.ends_with(sentence), "{said}");
            assert_eq!(said.lines().count(), 1, "{said}");
        }
    }
}

#[test]
fn b2_an_ecs_rolls_back_and_all_states_are_equal() {
    let output = example("ecs").args(["run", "--loss=10"]).output().unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    let hash = |line: &str| line.split_once("hash ").map(|(_, hash)| hash.to_owned());
    let hashes: Vec<_> = said.lines().filter_map(hash).collect();
    assert!(hashes.len() == 3 && hashes.iter().all(|hash| *hash == hashes[0]));
    assert!(said.ends_with(", all agree\n") && !said.contains(" 0 : 0,"));
}

#[test]
fn b2_an_ecs_that_iterates_in_storage_order_is_detected() {
    let output = example("ecs").args(["run", "--unsorted"]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(" on, in section \""), "{said}");
    assert_eq!(example("ecs").output().unwrap().status.code(), Some(2));
}
