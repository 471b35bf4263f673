//! Documents signed by retired keys: order by key changes, the maximum jump, the minimum.

use super::super::VERSION_JUMP_MAX;
use super::*;

const A: (&[usize], usize) = (&[0], 1);
const B: (&[usize], usize) = (&[1], 1);
/// The attacker's own key.
const X: (&[usize], usize) = (&[2], 1);

fn refused(offered: Offered) -> Refused {
    match offered {
        Offered::Refused(refused) => refused,
        other @ (Offered::Accepted(_) | Offered::Known) => panic!("{other:?}"),
    }
}

/// The text of the change from the first key to the second, at version 10.
fn change(admins: &Admins) -> String {
    admins.document(10, B, "")
}

/// A node that accepted the change, and holds version 11 signed by the new key.
fn honest(admins: &mut Admins) -> Holder {
    let mut holder = admins.holder(&[0], 1);
    let texts = [
        (admins.document(1, A, ""), &[0][..]),
        (change(admins), &[0, 1]),
        (admins.document(11, B, &game("doom", 7)), &[1]),
    ];
    for (text, by) in texts {
        let signed = admins.signed(&text, by);
        assert!(is_accepted(&holder.offer(&admins.provider, NOW, &signed)));
    }
    holder
}

fn minimum(admins: &Admins, version: u64, text: &str) -> Minimum {
    Minimum {
        version,
        sha256: admins.provider.sha256(&[text.as_bytes()]),
    }
}

#[test]
fn a_new_node_prefers_the_chain_that_retires_a_documents_key() {
    let mut admins = Admins::new(3);
    let bundle = honest(&mut admins).bundle().unwrap();
    for version in [11, 12, 1 << 31, VERSION_JUMP_MAX] {
        let mut newcomer = admins.holder(&[0], 1);
        let text = admins.document(version, A, &game("evil", 7));
        let forged = admins.signed(&text, &[0]);
        // It cannot know yet that the key is retired.
        assert!(is_accepted(&newcomer.offer(&admins.provider, NOW, &forged)));
        let reported = honest(&mut admins).held_version();
        assert!(newcomer.wants(reported), "{reported:?} is below {version}");
        assert!(is_accepted(&newcomer.offer(&admins.provider, NOW, &bundle)));
        assert_eq!(newcomer.version(), 11);
        assert_eq!(newcomer.bundle().unwrap(), bundle);
        let offered = newcomer.offer(&admins.provider, NOW, &forged);
        assert_eq!(refused(offered), Refused::RetiredKey { since: 10 });
        assert_eq!(newcomer.stats().retired_key, 1);
    }
}

#[test]
fn nothing_that_a_retired_key_signs_supersedes_the_chain_that_retires_it() {
    let mut admins = Admins::new(5);
    let mut holder = honest(&mut admins);
    let stored = holder.stored();
    let sign = |admins: &mut Admins, version, next, by: &[usize]| {
        let text = admins.document(version, next, &game("evil", 7));
        admins.signed(&text, by)
    };
    let plain = sign(&mut admins, 12, A, &[0]);
    let to_own = sign(&mut admins, 12, X, &[0, 2]);
    let by_own = sign(&mut admins, 13, X, &[2]);
    let before = sign(&mut admins, 9, X, &[0, 2]);
    // More key changes than the genuine chain has.
    let again = sign(&mut admins, 14, (&[3], 1), &[2, 3]);
    let and_again = sign(&mut admins, 15, (&[4], 1), &[3, 4]);
    for forged in [
        plain,
        to_own.clone(),
        [to_own.clone(), by_own.clone()].concat(),
        [before, by_own].concat(),
        [to_own, again, and_again].concat(),
    ] {
        let offered = holder.offer(&admins.provider, NOW, &forged);
        assert_eq!(refused(offered), Refused::RetiredKey { since: 10 });
    }
    assert_eq!(holder.stored(), stored);
    // A key that never was an admin's is reported as unknown.
    let strange = sign(&mut admins, 12, X, &[2]);
    let offered = holder.offer(&admins.provider, NOW, &strange);
    assert_eq!(refused(offered), Refused::UnknownKey);
}

#[test]
fn a_key_at_the_highest_version_can_still_be_retired() {
    let mut admins = Admins::new(3);
    let mut holder = admins.holder(&[0], 1);
    let text = admins.document(VERSION_JUMP_MAX, A, "");
    let highest = admins.signed(&text, &[0]);
    assert!(is_accepted(&holder.offer(&admins.provider, NOW, &highest)));
    let text = change(&admins);
    let change = admins.signed(&text, &[0, 1]);
    assert!(is_accepted(&holder.offer(&admins.provider, NOW, &change)));
    assert_eq!(holder.version(), 10);
    // The next change is compared with this one.
    let text = admins.document(10, X, "");
    let second = admins.signed(&text, &[1, 2]);
    let offered = holder.offer(&admins.provider, NOW, &second);
    let old = Refused::OldVersion {
        offered: 10,
        held: 10,
    };
    assert_eq!(refused(offered), old);
}

/// If keys are used again, the change that they signed before stays old.
#[test]
fn a_change_of_an_earlier_time_of_the_same_keys_is_old() {
    let mut admins = Admins::new(3);
    let mut holder = admins.holder(&[0], 1);
    let mut all = Vec::new();
    for (version, next, by) in [(1, B, [0, 1]), (2, A, [1, 0])] {
        let text = admins.document(version, next, "");
        let signed = admins.signed(&text, &by);
        assert!(is_accepted(&holder.offer(&admins.provider, NOW, &signed)));
        all.push(signed);
    }
    let offered = holder.offer(&admins.provider, NOW, &all[0]);
    let old = Refused::OldVersion {
        offered: 1,
        held: 2,
    };
    assert_eq!(refused(offered), old);
}

#[test]
fn a_version_may_jump_so_far_and_no_further() {
    let mut admins = Admins::new(2);
    let mut sign = |version, next, by: &[usize]| {
        let text = admins.document(version, next, "");
        admins.signed(&text, by)
    };
    let first = sign(5, A, &[0]);
    let max = 5 + VERSION_JUMP_MAX;
    let (remote, near) = (sign(max + 1, A, &[0]), sign(max, A, &[0]));
    let changed = sign(max + 1, B, &[0, 1]);
    let beyond = [changed.clone(), sign(max + 2, B, &[1])].concat();
    let last = sign(Document::NUMBER_MAX, A, &[0]);
    let mut holder = admins.holder(&[0], 1);
    let jump = |offered, max| Refused::VersionJump { offered, max };
    let offered = holder.offer(&admins.provider, NOW, &last);
    let most = Document::NUMBER_MAX;
    assert_eq!(refused(offered), jump(most, VERSION_JUMP_MAX));
    assert!(is_accepted(&holder.offer(&admins.provider, NOW, &first)));
    for (bytes, offered) in [
        (&remote, max + 1),
        (&changed, max + 1),
        (&beyond, max + 1),
        (&last, most),
    ] {
        let refusal = refused(holder.offer(&admins.provider, NOW, bytes));
        assert_eq!(refusal, jump(offered, max));
    }
    assert_eq!(holder.stats().version_jump, 5);
    assert!(is_accepted(&holder.offer(&admins.provider, NOW, &near)));
}

#[test]
fn with_a_minimum_a_new_node_takes_no_forged_change_of_keys_either() {
    let mut admins = Admins::new(3);
    let mut honest = honest(&mut admins);
    let bundle = honest.bundle().unwrap();
    let minimum = minimum(&admins, 10, &change(&admins));
    let newcomer = admins.holder(&[0], 1).with_minimum(minimum);
    let mut sign = |version, next, by: &[usize]| {
        let text = admins.document(version, next, &game("evil", 7));
        admins.signed(&text, by)
    };
    let without = Refused::WithoutMinimum(10);
    let below = Refused::BelowMinimum {
        offered: 9,
        minimum: 10,
    };
    let forged = [
        (sign(9, A, &[0]), below.clone()),
        (sign(9, X, &[0, 2]), below),
        (sign(10, X, &[0, 2]), without.clone()),
        (sign(12, A, &[0]), without.clone()),
        (
            [sign(9, X, &[0, 2]), sign(12, X, &[2])].concat(),
            without.clone(),
        ),
        (
            [sign(10, X, &[0, 2]), sign(12, X, &[2])].concat(),
            without.clone(),
        ),
        // The genuine change is in the bundle, but nothing follows from it.
        (
            [&sign(9, X, &[0, 2])[..], &bundle, &sign(12, X, &[2])].concat(),
            without,
        ),
    ];
    let to_own = [sign(9, X, &[0, 2]), sign(12, X, &[2])].concat();
    for (bytes, expected) in forged {
        let mut newcomer = newcomer.clone();
        let offered = newcomer.offer(&admins.provider, NOW, &bytes);
        assert_eq!(refused(offered), expected);
        assert_eq!(newcomer.stored(), None);
        assert!(is_accepted(&newcomer.offer(&admins.provider, NOW, &bundle)));
        assert_eq!(newcomer.bundle().unwrap(), bundle);
    }
    // A node that accepted a forged chain detects it at the next start.
    let mut captured = admins.holder(&[0], 1);
    assert!(is_accepted(&captured.offer(&admins.provider, NOW, &to_own)));
    let offered = captured.offer(&admins.provider, NOW, &bundle);
    assert_eq!(refused(offered), Refused::RetiredKey { since: 9 });
    let stored = captured.stored().unwrap();
    let error = newcomer.load(&admins.provider, &stored).unwrap_err();
    assert_eq!(error.0, Refused::WithoutMinimum(10));
    // A node without a minimum accepts the next document as before.
    let next = admins.document(12, B, "");
    let next = admins.signed(&next, &[1]);
    assert!(is_accepted(&honest.offer(&admins.provider, NOW, &next)));
}

/// A minimum may be any document, and is kept like a key change.
#[test]
fn a_minimum_outlives_the_documents_that_follow_and_a_restart() {
    let mut admins = Admins::new(2);
    let version = 3 * VERSION_JUMP_MAX;
    let text = admins.document(version, A, "");
    let minimum = minimum(&admins, version, &text);
    let empty = admins.holder(&[0], 1).with_minimum(minimum);
    let mut holder = empty.clone();
    let signed = admins.signed(&text, &[0]);
    assert!(is_accepted(&holder.offer(&admins.provider, NOW, &signed)));
    for next in 1..4 {
        let text = admins.document(version + next, A, &game("doom", 7));
        let signed = admins.signed(&text, &[0]);
        assert!(is_accepted(&holder.offer(&admins.provider, NOW, &signed)));
        let stored = holder.stored().unwrap();
        let loaded = empty.clone().load(&admins.provider, &stored).unwrap();
        assert_eq!(loaded.version(), version + next);
        assert_eq!(loaded.stored(), Some(stored));
        let mut newcomer = empty.clone();
        let bundle = holder.bundle().unwrap();
        assert!(is_accepted(&newcomer.offer(&admins.provider, NOW, &bundle)));
    }
    assert_eq!(holder.links.len(), 1);
    assert!(!holder.wants(HeldVersion {
        version: version + 3,
        ..holder.held_version()
    }));
    assert!(holder.wants(HeldVersion {
        version: version + 4,
        ..holder.held_version()
    }));
}

#[test]
fn what_neighbours_hold_is_wanted_by_keys_and_then_by_version() {
    let mut admins = Admins::new(3);
    let honest = honest(&mut admins);
    let reported = |version, keys: &[usize], threshold| HeldVersion {
        version,
        keys: admins.keys(keys, threshold).tag(),
    };
    assert_eq!(honest.held_version(), reported(11, &[1], 1));
    for (reported, is_wanted) in [
        (reported(11, &[1], 1), false),
        (reported(12, &[1], 1), true),
        // It is older, whatever its version.
        (reported(u64::MAX, &[0], 1), false),
        (reported(3, &[2], 1), true),
        (reported(3, &[0, 1], 1), true),
        (reported(3, &[0, 1], 2), true),
        (reported(0, &[2], 1), false),
    ] {
        assert_eq!(honest.wants(reported), is_wanted, "{reported:?}");
    }
    let new = admins.holder(&[0], 1);
    assert!(new.wants(reported(1, &[0], 1)) && new.wants(reported(1, &[1], 1)));
    assert!(!new.wants(new.held_version()));
}
