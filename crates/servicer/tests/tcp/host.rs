//! A host dialled by name is accepted only with a valid certificate.

use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, date_time_ymd};
use servicer::{
    Authorities, AuthoritiesError, BadHostName, CertificateFault, DialError, HostCertificate,
    HostCertificateError,
};
use wire::CloseCause;

use crate::authority::{
    Authority, Issued, NAME, accepted_by, dial, dial_name, dial_raw, pem, serve,
    serve_with_foreign_key,
};
use crate::harness::{HarnessRequest, Node, TalkerEvent, numbered};
use crate::raw_client::read_confirmation;

#[test]
fn b4_a_host_is_dialled_by_name_and_records_arrive_both_ways() {
    const COUNT: u32 = 1_000;
    // A chain of three: the root is not sent, the intermediates are.
    let root = Authority::new("root");
    let middle = root.below("middle");
    let low = middle.below("low");
    let mut issued = low.issue(|_| ());
    issued.chain = [&*issued.chain, &low.pem, &middle.pem].concat();
    let host = serve(&issued.certificate());
    let one = Node::start();
    for name in [NAME, "127.0.0.1"] {
        let here = dial_name(&one, host.address, (&root.trusted(), name)).unwrap();
        let there = accepted_by(&host);
        one.ask(HarnessRequest::Flood(here, COUNT, 100));
        host.ask(HarnessRequest::Flood(there, COUNT, 200));
        for number in 0..COUNT {
            assert_eq!(
                host.next(),
                TalkerEvent::Frame(there, numbered(number, 100))
            );
            assert_eq!(one.next(), TalkerEvent::Frame(here, numbered(number, 200)));
        }
        one.ask(HarnessRequest::Close(here, b"bye".to_vec()));
        assert_eq!(host.next(), TalkerEvent::Frame(there, b"bye".to_vec()));
        assert_eq!(
            host.next(),
            TalkerEvent::Closed(there, CloseCause::Finished)
        );
        assert_eq!(one.next(), TalkerEvent::Closed(here, CloseCause::Local));
    }
    let (here, there) = (one.handle.counters(), host.handle.counters());
    assert_eq!((here.dialled, here.opened), (2, 2));
    assert_eq!((there.accepted, there.opened), (2, 2));
    // Any TLS 1.3 client that checks chains can connect: raw keys are not required.
    read_confirmation(&mut dial_raw(host.address, &root));
    accepted_by(&host);
}

#[test]
fn b4_each_rejected_certificate_has_its_own_fault() {
    let root = Authority::new("root");
    let trusted = root.trusted();
    let other = Authority::new("other");
    // An authority with the name of the trusted one, but another key.
    let other_root = Authority::new("root");
    let between = root.below("between");
    let for_clients = |params: &mut CertificateParams| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    };
    let cases = [
        (
            root.issue(|params| params.not_after = date_time_ymd(2020, 1, 1)),
            CertificateFault::Expired,
        ),
        (
            root.issue(|params| params.not_before = date_time_ymd(4000, 1, 1)),
            CertificateFault::NotYetValid,
        ),
        (
            root.issue(|params| params.subject_alt_names.clear()),
            CertificateFault::OtherName,
        ),
        (other.issue(|_| ()), CertificateFault::UnknownAuthority),
        (between.issue(|_| ()), CertificateFault::UnknownAuthority),
        (other_root.issue(|_| ()), CertificateFault::Unusable),
        (root.issue(for_clients), CertificateFault::Unusable),
    ];
    for (number, (issued, fault)) in (1..).zip(cases) {
        let host = serve(&issued.certificate());
        let one = Node::start();
        let error = dial(&one, host.address, &trusted).unwrap_err();
        assert_eq!(error, DialError::Certificate(fault), "case {number}");
        assert!(error.to_string().starts_with("the host is not believed: "));
        assert_eq!(one.handle.counters().failed_identity, 1);
        let counters = host.wait_for(|counters| counters.failed_refused == 1);
        assert_eq!((counters.accepted, counters.opened), (1, 0));
        assert!(host.events.is_empty(), "the machine never hears of it");
    }
    // The same host under a name that its certificate does not have.
    let host = serve(&root.certificate());
    let one = Node::start();
    for name in ["lobby.example", "example", "sub.game.example", "127.0.0.2"] {
        let result = dial_name(&one, host.address, (&trusted, name));
        let fault = CertificateFault::OtherName;
        assert_eq!(result, Err(DialError::Certificate(fault)), "{name}");
    }
    assert!(dial(&one, host.address, &trusted).is_ok());
}

#[test]
fn b4_a_chain_without_its_key_is_no_proof() {
    let root = Authority::new("root");
    let (mine, others) = (root.issue(|_| ()), root.issue(|_| ()));
    let error = HostCertificate::from_pem(&others.chain, &mine.key).unwrap_err();
    assert_eq!(error, HostCertificateError::OtherKey);
    // An impostor presents the certificate and signs with a key of his own.
    let address = serve_with_foreign_key(&others.chain, &mine.key);
    let one = Node::start();
    let error = dial(&one, address, &root.trusted()).unwrap_err();
    assert_eq!(error, DialError::Certificate(CertificateFault::Unusable));
    assert_eq!(one.handle.counters().failed_identity, 1);
}

#[test]
fn b4_authorities_rotate_with_two() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let both = Authorities::from_pem(&[&*old.pem, &new.pem].concat()).unwrap();
    let certificate = old.certificate();
    let host = serve(&certificate);
    let one = Node::start();
    let unknown = Err(DialError::Certificate(CertificateFault::UnknownAuthority));
    // Before: clients that trust only the old root, and clients that trust both.
    assert!(dial(&one, host.address, &old.trusted()).is_ok());
    assert!(dial(&one, host.address, &both).is_ok());
    assert_eq!(dial(&one, host.address, &new.trusted()), unknown);
    let issued = new.issue(|_| ());
    certificate.replace(&issued.chain, &issued.key).unwrap();
    // After: clients that trust both still connect.
    assert!(dial(&one, host.address, &both).is_ok());
    assert!(dial(&one, host.address, &new.trusted()).is_ok());
    assert_eq!(dial(&one, host.address, &old.trusted()), unknown);
}

#[test]
fn b4_a_certificate_is_renewed_while_the_host_runs() {
    let root = Authority::new("root");
    let expired = root.issue(|params| params.not_after = date_time_ymd(2020, 1, 1));
    let certificate = root.certificate();
    let host = serve(&certificate);
    let one = Node::start();
    let here = dial(&one, host.address, &root.trusted()).unwrap();
    let there = accepted_by(&host);
    // The next client gets the new certificate, which shows because it is invalid.
    certificate.replace(&expired.chain, &expired.key).unwrap();
    let over = Err(DialError::Certificate(CertificateFault::Expired));
    assert_eq!(dial(&one, host.address, &root.trusted()), over);
    // An invalid replacement changes nothing.
    let good = root.issue(|_| ());
    for (chain, key, error) in [
        ("", &*good.key, HostCertificateError::NoCertificate),
        (&*good.chain, "", HostCertificateError::NoKey),
        (&*good.chain, &*expired.key, HostCertificateError::OtherKey),
    ] {
        assert_eq!(certificate.replace(chain, key), Err(error));
        assert_eq!(dial(&one, host.address, &root.trusted()), over);
    }
    certificate.replace(&good.chain, &good.key).unwrap();
    let again = dial(&one, host.address, &root.trusted()).unwrap();
    let reopened = accepted_by(&host);
    // Open connections stayed open, and both work.
    for (here, there) in [(here, there), (again, reopened)] {
        one.ask(HarnessRequest::Send(here, b"still here".to_vec()));
        assert_eq!(
            host.next(),
            TalkerEvent::Frame(there, b"still here".to_vec())
        );
    }
}

#[test]
fn unusable_certificates_and_roots_are_reported_by_kind() {
    let root = Authority::new("root");
    let Issued { chain, key } = root.issue(|_| ());
    let long = chain.repeat(HostCertificate::CHAIN_BYTES_MAX / 200);
    let junk = pem(b"no certificate");
    let bad_key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    let behind = [&*chain, &junk].concat();
    for (chain, key, error) in [
        (&*key, &*key, HostCertificateError::NoCertificate),
        (&*junk, &*key, HostCertificateError::BadCertificate),
        (&*behind, &*key, HostCertificateError::BadCertificate),
        (
            "-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----\n",
            &*key,
            HostCertificateError::BadCertificate,
        ),
        (&*long, &*key, HostCertificateError::TooLong),
        (&*chain, &*chain, HostCertificateError::NoKey),
        (&*chain, bad_key, HostCertificateError::BadKey),
    ] {
        let found = HostCertificate::from_pem(chain, key).unwrap_err();
        assert_eq!(found, error);
        assert!(!found.to_string().contains("BEGIN"));
    }
    // One file may hold both.
    let both = [&*key, &chain].concat();
    let certificate = HostCertificate::from_pem(&both, &both).unwrap();
    assert_eq!(format!("{certificate:?}"), "HostCertificate { .. }");

    for (pem, error) in [
        (String::new(), AuthoritiesError::NoCertificate),
        (key, AuthoritiesError::NoCertificate),
        (
            [root.pem.clone(), junk].concat(),
            AuthoritiesError::BadCertificate,
        ),
    ] {
        assert_eq!(Authorities::from_pem(&pem).err(), Some(error));
    }
    for name in ["", "game.example:443", "https://game.example", "a b"] {
        assert_eq!(root.trusted().host(name).err(), Some(BadHostName), "{name}");
    }
    assert!(root.trusted().host("::1").is_ok());
}
