//! Wrong files, and the whole text that an operator reads.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use super::*;

/// A good file; line 4 has `listen`, line 5 the roles, line 6 the first game, line 7 the second.
const GOOD: &str = r#"{
"name": "one", "identity_file": "one.pem",
"secret_file": "secret",
"listen": "127.0.0.1:4500",
"roles": ["entry", "exit"],
"games": [{"name": "a", "listen": ["127.0.0.1:9"], "exits": ["0101010101010101010101010101010101010101010101010101010101010101"]},
{"name": "b", "server": "192.0.2.7:5029"}],
"admin": {"listen": "127.0.0.1:4800",
"token_file": "token"}
}"#;

/// A key of P-256; RFC 6979, appendix A.2.5.
const KEY: &str = "0460fed4ba255a9d31c961eb74c6356d68c049b8923b61fa6ce669622e60f29fb67903fe1008b8bc99a41ae9e95628bc64f2f1b20c2d7e9f5177a3c294d4462299";

struct File(PathBuf);

impl Drop for File {
    fn drop(&mut self) {
        fs::remove_file(&self.0).unwrap();
    }
}

/// Reads a file of this text; returns the error without the folder.
fn error_of(name: &str, bytes: &[u8]) -> Option<String> {
    let name = format!("tickwire-{name}-{}.json", std::process::id());
    let file = File(std::env::temp_dir().join(&name));
    fs::write(&file.0, bytes).unwrap();
    let error = FileConfig::read(&file.0).err()?.to_string();
    let (_, said) = error.split_once(&format!("{name}: ")).expect("the file");
    Some(said.to_owned())
}

#[test]
fn errors_name_line_field_found_and_expected_value() {
    assert_eq!(error_of("good", GOOD.as_bytes()), None);
    let form = "expected IP:port, like 192.0.2.7:5029";
    let listen = r#""127.0.0.1:4500""#;
    let id = "01".repeat(32);
    for (from, to, expected) in [
        (listen, "9000", "line 4: listen: found 9000; expected \"IP:port\", like \"192.0.2.7:5029\"".to_owned()),
        (listen, "\"127.0.0.1\"", format!("line 4: listen: found \"127.0.0.1\"; the port is missing; {form}")),
        (listen, "\"127.0.0.1:99999\"", "line 4: listen: found \"127.0.0.1:99999\"; the port is not within 1 to 65535".to_owned()),
        (listen, "\"localhost:4500\"", format!("line 4: listen: found \"localhost:4500\"; host names are not resolved here; {form}")),
        (listen, "\"::1:17700\"", "line 4: listen: found \"::1:17700\"; an IPv6 address with a port needs brackets, like [::1]:5029".to_owned()),
        (listen, "\"0.0.0.0:4500\"", "line 4: listen: other nodes cannot reach 0.0.0.0:4500; set \"advertise\"".to_owned()),
        ("\"secret_file\": \"secret\",", "", "line 1: the field \"secret_file\" is missing".to_owned()),
        ("\"secret\"", "7", "line 3: secret_file: found 7; expected the path of a file, relative to this file's folder".to_owned()),
        ("\"one\"", "\"\"", "line 2: name: found \"\"; expected 1 to 32 of A-Z a-z 0-9 . _ -".to_owned()),
        ("[\"entry\", \"exit\"]", "[]", "line 5: roles: \"roles\" is empty; expected one or more of \"entry\", \"relay\", \"exit\"".to_owned()),
        ("\"exit\"]", "\"exti\"]", "line 5: roles[1]: found \"exti\"; expected one of \"entry\", \"relay\", \"exit\"".to_owned()),
        ("\"exit\"]", "7]", "line 5: roles[1]: found 7; expected one of \"entry\", \"relay\", \"exit\"".to_owned()),
        ("\"name\": \"b\",", "\"name\": \"b\", \"mode\": \"shade\",", "line 7: games[1].mode: found \"shade\"; expected one of \"single\", \"shadow\", \"dup\"".to_owned()),
        ("\"name\": \"b\",", "\"name\": \"b\", \"protocol\": \"UDP\",", "line 7: games[1].protocol: found \"UDP\"; expected \"udp\" or \"tcp\"".to_owned()),
        (&id, "ab", "line 6: games[0].exits[0]: found \"ab\"; expected a node id of 64 hexadecimal digits".to_owned()),
        ("\"192.0.2.7:5029\"", "\"192.0.2.7:502999\"", "line 7: games[1].server: found \"192.0.2.7:502999\"; the port is not within 1 to 65535".to_owned()),
        ("\"192.0.2.7:5029\"", "\"game.invalid:5029\"", "line 7: games[1].server: found \"game.invalid:5029\"; no address is known for this host name".to_owned()),
        ("\"name\": \"b\", ", "", "line 7: games[1]: the field \"name\" is missing".to_owned()),
        ("\"b\"", "\"\"", "line 7: games[1].name: game \"\" has no name".to_owned()),
        ("192.0.2.7:5029", "0.0.0.0:5029", "line 7: games[1].server: game \"b\" has a \"server\" that is not a reachable address".to_owned()),
        ("127.0.0.1:4800", "0.0.0.0:4800", "line 8: admin.listen: \"admin\" has no TLS, so it requires a loopback address".to_owned()),
        ("\"token_file\": \"token\"", "\"colour\": 7", "line 9: admin.colour: unknown field \"colour\", expected \"listen\" or \"token_file\"".to_owned()),
        ("\"admin\"", "// remark\n\"admin\"", "line 8: JSON has no comments; remove this one".to_owned()),
        ("\n}", "\n", "line 10: the text ends within its JSON: a } or ] is missing".to_owned()),
    ] {
        assert!(GOOD.contains(from), "{from}");
        let text = GOOD.replacen(from, to, 1);
        assert_eq!(error_of("bad", text.as_bytes()).as_deref(), Some(&*expected), "{to}");
    }
    for (text, expected) in [
        ("", "the file is empty; expected a JSON object"),
        (
            "name = \"one\"\n",
            "line 1: the file is not JSON: it begins with \"n\"; expected {",
        ),
        (
            "# remark\n{}",
            "line 1: JSON has no comments; remove this one",
        ),
    ] {
        assert_eq!(
            error_of("whole", text.as_bytes()).as_deref(),
            Some(expected)
        );
    }
}

#[test]
fn keys_of_a_signed_document_are_named_with_their_line() {
    let signed = |keys: &str, threshold: u8| {
        let games = GOOD.split_once("\"games\"").unwrap().0;
        format!(
            "{games}\"signed\": {{\"network\": \"n\", \"store\": \"s\", \"listen\": [\"127.0.0.1\"],\n\
             \"admins\": {{\"threshold\": {threshold},\n\"keys\": [{keys}]}}}}}}"
        )
    };
    let key = format!("\"{KEY}\"");
    assert_eq!(error_of("signed", signed(&key, 1).as_bytes()), None);
    for (keys, threshold, expected) in [
        (
            &*key,
            3,
            "line 7: signed.admins.threshold: found 3, which is not within 1 to 1",
        ),
        (
            "\"04ab\"",
            1,
            "line 8: signed.admins.keys[0]: found \"04ab\", which is no public key of P-256, in hexadecimal or PEM",
        ),
        ("", 1, "line 8: signed.admins.keys: is empty"),
    ] {
        let said = error_of("signed", signed(keys, threshold).as_bytes());
        assert_eq!(said.as_deref(), Some(expected));
    }
}

#[test]
fn a_minimum_is_a_version_and_a_hash() {
    let signed = |minimum: &str| {
        let games = GOOD.split_once("\"games\"").unwrap().0;
        format!(
            "{games}\"signed\": {{\"network\": \"n\", \"store\": \"s\", \"listen\": [\"127.0.0.1\"],\n\
             \"admins\": {{\"threshold\": 1, \"keys\": [\"{KEY}\"]}},\n\"minimum\": {minimum}}}}}"
        )
    };
    let hash = "ab".repeat(32);
    let good = signed(&format!("{{\"version\": 10, \"sha256\": \"{hash}\"}}"));
    let config: FileConfig = serde_json::from_str(&good).unwrap();
    let minimum = config.signed.as_ref().unwrap().minimum.unwrap();
    assert_eq!((minimum.version, minimum.sha256), (10, [0xAB; 32]));
    let again = serde_json::to_string(&config).unwrap();
    assert_eq!(serde_json::from_str::<FileConfig>(&again).unwrap(), config);
    for (minimum, expected) in [
        (
            "{\"version\": 10, \"sha256\": \"ab\"}",
            "line 8: signed.minimum.sha256: found \"ab\"; expected a SHA-256 of 64 hexadecimal digits",
        ),
        (
            "{\"version\": 10}",
            "line 8: signed.minimum: the field \"sha256\" is missing",
        ),
    ] {
        let said = error_of("minimum", signed(minimum).as_bytes());
        assert_eq!(said.as_deref(), Some(expected));
    }
}

/// What the store holds has to follow from the minimum too.
#[test]
fn a_store_that_does_not_descend_from_the_minimum_is_rejected() {
    use super::super::FileMinimum;
    use crypto::Provider;
    use relay_mesh::signed_config::Envelope;

    let sandbox = Sandbox::new(&[("one", FileRole::Relay)]).unwrap();
    let mut provider = Ring::new();
    let admin = Identity::generate(&mut provider).unwrap();
    let public = *admin.public_key();
    let text = format!(
        "{{\"network\": \"n\", \"version\": 3, \"not_before\": 0, \"not_after\": 9, \
         \"admins\": {{\"threshold\": 1, \"keys\": [\"{public}\"]}}}}"
    );
    let sha256 = provider.sha256(&[text.as_bytes()]);
    let mut envelope = Envelope::new(text.into_bytes()).unwrap();
    let key = provider.signing_key(&admin).unwrap();
    envelope.sign(&mut provider, &key, public).unwrap();
    let mut bytes = Vec::new();
    envelope.encode(&mut bytes);
    fs::write(sandbox.directory().join("store"), bytes).unwrap();
    let open = |minimum| {
        let signed = FileSigned {
            network: "n".to_owned(),
            admins: AdminKeys::new([public], 1).unwrap(),
            store: "store".into(),
            minimum,
            listen: Vec::new(),
        };
        let opened = signed.open(sandbox.directory());
        opened.map(|opened| opened.holder.version())
    };
    assert_eq!(open(None), Ok(3));
    let minimum = FileMinimum { version: 3, sha256 };
    assert_eq!(open(Some(minimum)), Ok(3));
    let minimum = FileMinimum {
        sha256: [1; 32],
        ..minimum
    };
    let error = open(Some(minimum)).unwrap_err().to_string();
    assert!(
        error.contains("store: ") && error.contains("version 3"),
        "{error}"
    );
}

#[test]
fn useless_numbers_and_names_are_rejected() {
    for (from, to, said) in [
        (
            "\"roles\"",
            "\"shards\": 9, \"roles\"",
            "line 5: shards: found 9; expected 1 to 8",
        ),
        (
            "\"roles\"",
            "\"shards\": 256, \"roles\"",
            "line 5: shards: found 256; expected 1 to 8",
        ),
        (
            "\"127.0.0.1:9\"",
            "\"255.255.255.255:9\"",
            "line 6: games[0].listen[0]: found 255.255.255.255:9; expected an address of this host, or 0.0.0.0 or [::]",
        ),
        (
            "\"127.0.0.1:4500\"",
            "\"224.0.0.1:4500\"",
            "line 4: listen: found 224.0.0.1:4500; expected an address of this host, or 0.0.0.0 or [::]",
        ),
        (
            "\"192.0.2.7:5029\"",
            "\"255.255.255.255:5029\"",
            "line 7: games[1].server: game \"b\" has a \"server\" that is not a reachable address",
        ),
        (
            "\"roles\"",
            "\"advertise\": [\"192.0.2.1:1\", \"192.0.2.1:2\", \"192.0.2.1:3\", \"192.0.2.1:4\", \"192.0.2.1:5\"], \"roles\"",
            "line 5: advertise[4]: found 192.0.2.1:5, one too many; expected at most 4",
        ),
        (
            "\"roles\"",
            "\"limits\": {\"flows\": 0}, \"roles\"",
            "line 5: limits.flows: found 0; expected 1 to 1048576",
        ),
        (
            "\"roles\"",
            "\"unproved_limits\": {\"b\": {}}, \"roles\"",
            "line 5: unproved_limits.b: found the game \"b\"; expected one over UDP with \"listen\" here",
        ),
        (
            "\"roles\"",
            "\"limits\": {\"links\": 0}, \"roles\"",
            "line 5: limits.links: found 0; expected 1 to 4096",
        ),
        (
            "\"roles\"",
            "\"limits\": {\"flow_bytes_per_second\": 0}, \"roles\"",
            "line 5: limits.flow_bytes_per_second: found 0; expected 1500 to 1073741824",
        ),
        (
            "\"name\": \"a\"",
            "\"protocol\": \"tcp\", \"name\": \"a\"",
            "",
        ),
        (
            "\"roles\"",
            "\"unproved_limits\": {\"a\": {}}, \"roles\"",
            "",
        ),
    ] {
        let text = GOOD.replacen(from, to, 1);
        let error = error_of("numbers", text.as_bytes()).unwrap_or_default();
        assert_eq!(error, said);
    }
}

#[test]
fn unproved_limits_apply_to_games_over_udp() {
    let text = GOOD.replacen(
        "\"name\": \"a\"",
        "\"protocol\": \"tcp\", \"name\": \"a\"",
        1,
    );
    let text = text.replacen(
        "\"roles\"",
        "\"unproved_limits\": {\"a\": {}}, \"roles\"",
        1,
    );
    let error = error_of("unproved_limits", text.as_bytes()).unwrap();
    assert!(
        error.contains("unproved_limits.a: found the game \"a\"; expected one over UDP"),
        "{error}"
    );
}

#[test]
fn a_byte_order_mark_and_windows_line_ends_are_accepted() {
    let text = format!("\u{FEFF}{}", GOOD.replace('\n', "\r\n"));
    assert_eq!(error_of("windows", text.as_bytes()), None);
}

#[test]
fn system_errors_name_the_path_and_the_reason() {
    let none = Path::new("/nonexistent/node.json");
    let error = FileConfig::read(none).unwrap_err().to_string();
    assert_eq!(error, "/nonexistent/node.json: there is no such file");
    let folder = std::env::temp_dir();
    let error = FileConfig::read(&folder).unwrap_err().to_string();
    assert!(
        error.ends_with(": this is a folder; expected a file"),
        "{error}"
    );
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn the_old_name_of_unproved_limits_is_read_with_a_warning() {
    let lines = Lines::default();
    let writer = lines.clone();
    let log = tracing_subscriber::fmt().with_writer(move || writer.clone());
    let _log = tracing::subscriber::set_default(log.finish());
    let named = |name: &str, game: &str| {
        let field = format!("\"{name}\": {{\"{game}\": {{}}}}, \"roles\"");
        error_of("renamed", GOOD.replacen("\"roles\"", &field, 1).as_bytes())
    };
    assert_eq!(named("unproved_limits", "a"), None);
    assert!(lines.0.lock().unwrap().is_empty());
    assert_eq!(named("rations", "a"), None);
    let logged = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let warning = "the field \"rations\" was renamed to \"unproved_limits\"";
    assert!(
        logged.contains("WARN") && logged.contains(warning),
        "{logged}"
    );
    let error = named("rations", "b").unwrap();
    assert!(
        error.starts_with("line 5: rations.b: found the game"),
        "{error}"
    );
}
