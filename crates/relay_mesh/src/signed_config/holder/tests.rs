mod retired;

use super::*;
use crate::signed_config::EnvelopeError;
use crate::signed_config::fixture::{Admins, FROM, NOW, UNTIL, bytes, game};
use crate::signed_config::{AfterEnd, LINKS_MAX};
use crypto::Identity;
use netsim::provider::{Counting, Counts, SimProvider};
use wire::Seed;

fn is_accepted(offered: &Offered) -> bool {
    matches!(offered, Offered::Accepted(_))
}

const ONE: (&[usize], usize) = (&[0], 1);

#[test]
fn pgx7_mesh_a2_any_old_config_is_refused_after_restart_too() {
    let mut admins = Admins::new(1);
    let all: Vec<Vec<u8>> = (1..=4)
        .map(|version| {
            let text = admins.document(version, ONE, "");
            admins.signed(&text, &[0])
        })
        .collect();
    let mut holder = admins.holder(&[0], 1);
    for bytes in &all[..3] {
        assert!(is_accepted(&holder.offer(&admins.provider, NOW, bytes)));
    }
    let stored = holder.stored().unwrap();
    let anchor = admins.keys(&[0], 1);
    let restored = Holder::restore("test", anchor, &admins.provider, &stored).unwrap();
    for mut holder in [holder, restored] {
        assert_eq!(holder.version(), 3);
        assert_eq!(holder.offer(&admins.provider, NOW, &all[2]), Offered::Known);
        for (offered, bytes) in (1..).zip(&all[..2]) {
            let refused = Refused::OldVersion { offered, held: 3 };
            let offered = holder.offer(&admins.provider, NOW, bytes);
            assert_eq!(offered, Offered::Refused(refused));
            assert_eq!(holder.version(), 3);
        }
        assert_eq!(holder.stats().old_version, 2);
        assert_eq!(holder.stored().unwrap(), stored);
        assert!(is_accepted(&holder.offer(&admins.provider, NOW, &all[3])));
    }
}

#[test]
fn pgx7_pgd_p11_a_stored_config_is_not_trusted_unsigned() {
    let mut admins = Admins::new(2);
    let text = admins.document(1, ONE, &game("doom", 5_029));
    let mut holder = admins.holder(&[0], 1);
    let envelope = admins.signed(&text, &[0]);
    assert!(is_accepted(&holder.offer(&admins.provider, NOW, &envelope)));
    let stored = holder.stored().unwrap();
    let restore = |stored: &[u8], admin| {
        let anchor = admins.keys(&[admin], 1);
        Holder::restore("test", anchor, &admins.provider, stored)
    };
    assert_eq!(restore(&stored, 0).unwrap().document(), holder.document());
    let server = stored.windows(9).position(|it| it == b"192.0.2.7").unwrap();
    let mut changed = stored.clone();
    changed[server] = b'2';
    let refused = |result: Result<Holder, RestoreError>| result.unwrap_err().0;
    assert_eq!(refused(restore(&changed, 0)), Refused::BadSignature);
    assert_eq!(
        refused(restore(text.as_bytes(), 0)),
        Refused::Malformed(EnvelopeError::Foreign)
    );
    assert_eq!(
        refused(restore(&stored[..40], 0)),
        Refused::Malformed(EnvelopeError::Truncated)
    );
    assert_eq!(
        refused(restore(&[], 0)),
        Refused::Malformed(EnvelopeError::Truncated)
    );
    assert_eq!(refused(restore(&stored, 1)), Refused::UnknownKey);
    let anchor = admins.keys(&[0], 1);
    let other = Holder::restore("other", anchor, &admins.provider, &stored);
    assert_eq!(refused(other), Refused::OtherNetwork);
}

#[test]
fn each_reason_to_refuse_has_its_counter() {
    let mut admins = Admins::new(4);
    let mut holder = admins.holder(&[0, 1, 2], 2);
    let of_three: (&[usize], usize) = (&[0, 1, 2], 2);
    let version = |admins: &Admins, version| admins.document(version, of_three, "");
    let first = version(&admins, 5);
    let first = admins.signed(&first, &[0, 2]);
    assert!(is_accepted(&holder.offer(&admins.provider, NOW, &first)));
    let offer = |holder: &mut Holder, admins: &Admins, bytes: &[u8]| match holder.offer(
        &admins.provider,
        NOW,
        bytes,
    ) {
        Offered::Refused(refused) => refused,
        other @ (Offered::Accepted(_) | Offered::Known) => panic!("{other:?}"),
    };

    let too_large = vec![0; BUNDLE_LEN_MAX + 1];
    assert_eq!(offer(&mut holder, &admins, &too_large), Refused::TooLarge);
    let malformed = offer(&mut holder, &admins, &first[1..]);
    assert_eq!(malformed, Refused::Malformed(EnvelopeError::Foreign));
    let six = version(&admins, 6);
    let by_stranger = admins.signed(&six, &[3]);
    assert_eq!(
        offer(&mut holder, &admins, &by_stranger),
        Refused::UnknownKey
    );
    let by_one = admins.signed(&six, &[1, 3]);
    let too_few = Refused::TooFewSignatures {
        found: 1,
        needed: 2,
    };
    assert_eq!(offer(&mut holder, &admins, &by_one), too_few);
    let mut forged = admins.signed(&six, &[0, 1]);
    *forged.last_mut().unwrap() = b' ';
    assert_eq!(offer(&mut holder, &admins, &forged), Refused::BadSignature);
    let elsewhere = six.replace("\"test\"", "\"elsewhere\"");
    let elsewhere = admins.signed(&elsewhere, &[0, 1]);
    assert_eq!(
        offer(&mut holder, &admins, &elsewhere),
        Refused::OtherNetwork
    );
    let old = version(&admins, 4);
    let old = admins.signed(&old, &[0, 1]);
    let refused = Refused::OldVersion {
        offered: 4,
        held: 5,
    };
    assert_eq!(offer(&mut holder, &admins, &old), refused);
    let other = admins.document(5, of_three, &game("doom", 1));
    let other = admins.signed(&other, &[0, 1]);
    let refused = offer(&mut holder, &admins, &other);
    assert_eq!(refused, Refused::SameVersionOtherBytes(5));

    let stats = *holder.stats();
    let once = HolderStats {
        accepted: 1,
        too_large: 1,
        malformed: 1,
        unknown_key: 1,
        too_few_signatures: 1,
        bad_signature: 1,
        other_network: 1,
        old_version: 1,
        same_version_other_bytes: 1,
        ..HolderStats::default()
    };
    assert_eq!(stats, once);
    assert_eq!(holder.version(), 5);
}

#[test]
fn admins_may_sign_what_is_no_document_and_it_is_refused() {
    let mut admins = Admins::new(1);
    let text = admins.document(1, ONE, "");
    // `Envelope::new` would refuse it, but another program may have signed it.
    let text = text.replace("\"games\":[]", "\"gamez\":[]");
    let identity = Identity::generate(&mut admins.provider).unwrap();
    let key = admins.provider.signing_key(&identity).unwrap();
    let message = [b"tw1 mesh config", text.as_bytes()].concat();
    let signature = admins.provider.sign(&key, &message).unwrap();
    let mut envelope = b"tw1 conf\x01".to_vec();
    envelope.extend(identity.public_key().0);
    envelope.extend(signature);
    envelope.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
    envelope.extend(text.as_bytes());
    let anchor = AdminKeys::new([*identity.public_key()], 1).unwrap();
    let mut holder = Holder::new("test", anchor);
    let Offered::Refused(Refused::Document(error)) = holder.offer(&admins.provider, NOW, &envelope)
    else {
        panic!("taken");
    };
    assert!(error.to_string().contains("gamez"), "{error}");
    assert_eq!(holder.stats().bad_document, 1);
}

#[test]
fn pgx7_a_document_is_taken_within_its_time_and_holds_until_the_next() {
    let mut admins = Admins::new(1);
    let text = admins.document(1, ONE, "");
    let signed = admins.signed(&text, &[0]);
    let at = UnixTime::from_secs;
    let mut holder = admins.holder(&[0], 1);
    assert_eq!(holder.validity(NOW), Validity::None);
    for (unix, refused) in [
        (at(0), Refused::NotYetValid),
        (at(FROM - 1), Refused::NotYetValid),
        (at(UNTIL), Refused::Expired),
        (at(u64::MAX), Refused::Expired),
    ] {
        let offered = holder.offer(&admins.provider, unix, &signed);
        assert_eq!(offered, Offered::Refused(refused));
    }
    assert_eq!(holder.stats().not_yet_valid, 2);
    assert_eq!(holder.stats().expired, 2);
    assert!(is_accepted(&holder.offer(
        &admins.provider,
        at(FROM),
        &signed
    )));
    assert_eq!(holder.validity(at(UNTIL - 1)), Validity::InForce);
    assert_eq!(holder.validity(at(UNTIL)), Validity::Expired);
    let document = holder.document().unwrap();
    assert!(document.takes_new_flows(at(UNTIL)), "served on by default");

    // It is restored even if expired: a restart must not allow an older document.
    let stored = holder.stored().unwrap();
    let anchor = admins.keys(&[0], 1);
    let restored = Holder::restore("test", anchor, &admins.provider, &stored).unwrap();
    assert_eq!(restored.version(), 1);
    assert_eq!(restored.validity(at(UNTIL)), Validity::Expired);

    let text = admins.document(2, ONE, "");
    let text = text.replace("\"admins\"", "\"after_end\":\"refuse_new\",\"admins\"");
    let signed = admins.signed(&text, &[0]);
    assert!(is_accepted(&holder.offer(&admins.provider, NOW, &signed)));
    let document = holder.document().unwrap();
    assert_eq!(document.after_end, AfterEnd::RefuseNew);
    assert!(document.takes_new_flows(at(UNTIL - 1)));
    assert!(!document.takes_new_flows(at(UNTIL)));
}

#[test]
fn pgx7_keys_change_by_a_document_of_the_old_and_the_new() {
    let mut admins = Admins::new(5);
    let old: (&[usize], usize) = (&[0, 1, 2], 2);
    let new: (&[usize], usize) = (&[2, 3, 4], 2);
    let mut holder = admins.holder(old.0, old.1);
    let first = admins.document(1, old, "");
    let first = admins.signed(&first, &[0, 1]);
    assert!(is_accepted(&holder.offer(&admins.provider, NOW, &first)));
    let change = admins.document(2, new, "");
    let too_few = |needed| Offered::Refused(Refused::TooFewSignatures { found: 1, needed });
    let by_new_alone = admins.signed(&change, &[2, 3, 4]);
    let offered = holder.offer(&admins.provider, NOW, &by_new_alone);
    assert_eq!(offered, too_few(2), "of the old only one");
    let by_old_alone = admins.signed(&change, &[0, 2]);
    let offered = holder.offer(&admins.provider, NOW, &by_old_alone);
    assert_eq!(
        offered,
        too_few(2),
        "of the new only one: nobody may hold the others"
    );
    let by_both = admins.signed(&change, &[0, 2, 3]);
    let Offered::Accepted(accepted) = holder.offer(&admins.provider, NOW, &by_both) else {
        panic!("refused");
    };
    assert!(accepted.difference.has_other_admins);
    assert_eq!(holder.admins(), &admins.keys(new.0, new.1));

    let third = admins.document(3, new, "");
    let by_old = admins.signed(&third, &[0, 1, 2]);
    let offered = holder.offer(&admins.provider, NOW, &by_old);
    assert_eq!(offered, too_few(2), "the old ones are out of office");
    let by_new = admins.signed(&third, &[3, 4]);
    assert!(is_accepted(&holder.offer(&admins.provider, NOW, &by_new)));
}

/// A chain of key changes.
fn rotated(admins: &mut Admins, changes: usize) -> Holder {
    let mut holder = admins.holder(&[0], 1);
    let first = admins.document(1, ONE, "");
    let first = admins.signed(&first, &[0]);
    assert!(is_accepted(&holder.offer(&admins.provider, NOW, &first)));
    for change in 1..=changes {
        let version = 10 * u64::try_from(change).unwrap();
        let text = admins.document(version, (&[change], 1), "");
        let signed = admins.signed(&text, &[change - 1, change]);
        assert!(is_accepted(&holder.offer(&admins.provider, NOW, &signed)));
        let text = admins.document(version + 1, (&[change], 1), &game("doom", 7));
        let signed = admins.signed(&text, &[change]);
        assert!(is_accepted(&holder.offer(&admins.provider, NOW, &signed)));
    }
    holder
}

#[test]
fn pg14_pgd_p12_absent_and_new_nodes_follow_key_changes() {
    let mut admins = Admins::new(4);
    let holder = rotated(&mut admins, 3);
    assert_eq!(holder.links.len(), 3);
    let bundle = holder.bundle().unwrap();
    for anchor in 0..4 {
        let mut newcomer = admins.holder(&[anchor], 1);
        assert!(
            is_accepted(&newcomer.offer(&admins.provider, NOW, &bundle)),
            "{anchor}"
        );
        assert_eq!(newcomer.version(), 31);
        assert_eq!(
            newcomer.links.len(),
            3 - anchor,
            "what leads on from its own keys"
        );
        let anchor = admins.keys(&[anchor], 1);
        let stored = newcomer.stored().unwrap();
        let restored = Holder::restore("test", anchor, &admins.provider, &stored).unwrap();
        assert_eq!(restored.stored(), Some(stored));
    }
    let mut away = admins.holder(&[0], 1);
    let first = admins.document(1, ONE, "");
    let first = admins.signed(&first, &[0]);
    assert!(is_accepted(&away.offer(&admins.provider, NOW, &first)));
    assert!(is_accepted(&away.offer(&admins.provider, NOW, &bundle)));
    assert_eq!(away.stored(), holder.stored());

    // Without the links the old keys do not lead to the new ones.
    let last = bytes(&holder.held.as_ref().unwrap().envelope);
    let mut newcomer = admins.holder(&[0], 1);
    let offered = newcomer.offer(&admins.provider, NOW, &last);
    assert_eq!(offered, Offered::Refused(Refused::UnknownKey));
}

#[test]
fn links_are_bounded_and_the_oldest_is_forgotten() {
    let mut admins = Admins::new(LINKS_MAX + 2);
    let holder = rotated(&mut admins, LINKS_MAX + 1);
    assert_eq!(holder.links.len(), LINKS_MAX);
    let bundle = holder.bundle().unwrap();
    let offered = |anchor| {
        let mut newcomer = admins.holder(&[anchor], 1);
        newcomer.offer(&admins.provider, NOW, &bundle)
    };
    assert_eq!(offered(0), Offered::Refused(Refused::UnknownKey));
    assert!(is_accepted(&offered(1)));
    let one_more = [&bundle[..], &bundle].concat();
    let mut newcomer = admins.holder(&[1], 1);
    let offered = newcomer.offer(&admins.provider, NOW, &one_more);
    let too_many = Refused::Malformed(EnvelopeError::TooMany);
    assert_eq!(offered, Offered::Refused(too_many));
}

/// Changes the keys with a document of maximum length.
fn change_long(holder: &mut Holder, admins: &mut Admins, change: usize) {
    let version = u64::try_from(change).unwrap();
    let text = admins.document(version, (&[change], 1), "");
    let spaces = " ".repeat(super::super::DOCUMENT_LEN_MAX - text.len());
    let signed = admins.signed(&(text + &spaces), &[change - 1, change]);
    assert!(is_accepted(&holder.offer(&admins.provider, NOW, &signed)));
}

#[test]
fn pgx7_a_holder_is_restored_after_eight_changes_by_long_documents() {
    let mut admins = Admins::new(LINKS_MAX + 3);
    let mut holder = admins.holder(&[0], 1);
    let restore = |admins: &Admins, anchor, stored: &[u8]| {
        let anchor = admins.keys(&[anchor], 1);
        Holder::restore("test", anchor, &admins.provider, stored)
    };
    for change in 1..=LINKS_MAX + 1 {
        change_long(&mut holder, &mut admins, change);
        let stored = holder.stored().unwrap();
        assert!(stored.len() <= STORED_LEN_MAX);
        let restored = restore(&admins, 0, &stored).unwrap();
        assert_eq!(restored.version(), holder.version());
        assert_eq!(restored.stored(), Some(stored));
        assert!(!holder.has_dropped_links());
    }
    // After one more it reports that its own file needs newer keys.
    change_long(&mut holder, &mut admins, LINKS_MAX + 2);
    assert!(holder.has_dropped_links());
    let stored = holder.stored().unwrap();
    let refused = restore(&admins, 0, &stored).unwrap_err().0;
    assert_eq!(refused, Refused::UnknownKey);
    let restored = restore(&admins, 1, &stored).unwrap();
    assert!(!restored.has_dropped_links());
    assert_eq!(restored.version(), holder.version());
}

#[test]
fn a_bundle_keeps_its_bound_and_leaves_out_the_oldest_links() {
    let mut admins = Admins::new(6);
    let mut holder = admins.holder(&[0], 1);
    for change in 1..6_usize {
        change_long(&mut holder, &mut admins, change);
    }
    assert_eq!(holder.links.len(), 4);
    let bundle = holder.bundle().unwrap();
    assert!(bundle.len() <= BUNDLE_LEN_MAX);
    let (links, _) = read_bundle(&bundle).unwrap();
    let kept: Vec<_> = holder.links[2..]
        .iter()
        .map(|link| &link.envelope)
        .collect();
    assert_eq!(
        links.iter().collect::<Vec<_>>(),
        kept,
        "two of 256 KiB find room"
    );
}

/// A signature is verified only if the outcome depends on it.
#[test]
fn checks_are_counted_and_bounded() {
    let mut admins = Admins::new(17);
    let text = admins.document(1, ONE, "");
    let strangers: Vec<usize> = (1..17).collect();
    let by_strangers = admins.sign(&text, &strangers);
    let friend_and_strangers = admins.sign(&text, &(0..16).collect::<Vec<_>>());
    let counts = Counts::default();
    let provider = Counting::new(SimProvider::new(Seed::from_number(1)), &counts);
    let checks = || counts.now().verify;
    let mut holder = admins.holder(&[0], 1);
    let nobody = bytes(&by_strangers).repeat(LINKS_MAX + 1);
    let offered = holder.offer(&provider, NOW, &nobody);
    assert_eq!(offered, Offered::Refused(Refused::UnknownKey));
    assert_eq!(checks(), 0);
    let most = bytes(&friend_and_strangers).repeat(LINKS_MAX + 1);
    assert!(is_accepted(&holder.offer(&provider, NOW, &most)));
    assert_eq!(checks(), 16 * 9);
    assert_eq!(holder.offer(&provider, NOW, &most), Offered::Known);
    assert_eq!(checks(), 16 * 9, "what is held is compared");
}

#[test]
fn pg13_a_document_lists_what_it_changes_and_what_it_leaves() {
    let mut admins = Admins::new(1);
    let mut holder = admins.holder(&[0], 1);
    let mut offer = |version, games: &str| {
        let text = admins.document(version, ONE, games);
        let signed = admins.signed(&text, &[0]);
        match holder.offer(&admins.provider, NOW, &signed) {
            Offered::Accepted(accepted) => accepted.difference,
            other @ (Offered::Refused(_) | Offered::Known) => panic!("{other:?}"),
        }
    };
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    let first = [game("a", 1), game("b", 2), game("c", 3)].join(",");
    let difference = offer(1, &first);
    assert_eq!(difference.added, names(&["a", "b", "c"]));
    // In another order, with one changed, one removed and one new.
    let second = [game("d", 4), game("b", 22), game("a", 1)].join(",");
    let difference = offer(2, &second);
    let expected = Difference {
        added: names(&["d"]),
        removed: names(&["c"]),
        changed: names(&["b"]),
        unchanged: names(&["a"]),
        has_other_members: false,
        has_other_admins: false,
    };
    assert_eq!(difference, expected);
}
