use serde::Deserialize;

use super::*;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "read, and not looked at")]
struct File {
    name: String,
    listen: core::net::SocketAddr,
    #[serde(default)]
    games: Vec<Game>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "read, and not looked at")]
struct Game {
    server: core::net::SocketAddr,
    #[serde(default)]
    players: u16,
}

fn read(text: &str) -> Result<File, String> {
    let expected = |field: &str| match field {
        "listen" | "games.server" => Some(Expected::Address),
        _ => None,
    };
    read_json(text.as_bytes(), expected).map_err(|error| error.to_string())
}

#[test]
fn each_mistake_names_line_field_what_is_found_and_what_is_expected() {
    let with = |listen: &str| format!("{{\n  \"name\": \"a\",\n  \"listen\": {listen}\n}}");
    let game = |game: &str| {
        format!(
            "{{\"name\": \"a\", \"listen\": \"127.0.0.1:9\",\n\"games\": [\n{{\"server\": \"192.0.2.7:9\"}},\n{game}\n]}}"
        )
    };
    let form = "expected IP:port, like 192.0.2.7:5029";
    for (text, expected) in [
        (with("9000"), "line 3: listen: found 9000; expected \"IP:port\", like \"192.0.2.7:5029\"".to_owned()),
        (with("null"), "line 3: listen: found null; expected \"IP:port\", like \"192.0.2.7:5029\"".to_owned()),
        (with("\"192.0.2.1\""), format!("line 3: listen: found \"192.0.2.1\"; the port is missing; {form}")),
        (with("\"192.0.2.1:99999\""), "line 3: listen: found \"192.0.2.1:99999\"; the port is not within 1 to 65535".to_owned()),
        (with("\"localhost:9\""), format!("line 3: listen: found \"localhost:9\"; host names are not resolved here; {form}")),
        (with("\"::1:17700\""), "line 3: listen: found \"::1:17700\"; an IPv6 address with a port needs brackets, like [::1]:5029".to_owned()),
        (game("{\"players\": 3}"), "line 4: games[1]: the field \"server\" is missing".to_owned()),
        (game("{\"server\": \"a\"}"), format!("line 4: games[1].server: found \"a\"; the port is missing; {form}")),
        (game("{\"server\": \"192.0.2.7:9\",\n\"players\": 70000}"), "line 5: games[1].players: found 70000; expected a whole number from 0 to 65535".to_owned()),
        (game("{\"server\": \"192.0.2.7:9\", \"playres\": 7}"), "line 4: games[1].playres: unknown field \"playres\", expected \"server\" or \"players\"".to_owned()),
        ("{\"name\": \"a\"}".to_owned(), "line 1: the field \"listen\" is missing".to_owned()),
        (String::new(), "the file is empty; expected a JSON object".to_owned()),
        (" \r\n\r\n".to_owned(), "the file is empty; expected a JSON object".to_owned()),
        ("\nname = \"a\"\n".to_owned(), "line 2: the file is not JSON: it begins with \"n\"; expected {".to_owned()),
        ("{\n// a remark\n\"name\": 1}".to_owned(), "line 2: JSON has no comments; remove this one".to_owned()),
        ("# a remark\n{}".to_owned(), "line 1: JSON has no comments; remove this one".to_owned()),
        ("{\"name\":\n".to_owned(), "line 2: the text ends within its JSON: a } or ] is missing".to_owned()),
        ("{\"name\" 1}".to_owned(), "line 1: the file is not JSON at column 9: expected `:`".to_owned()),
        (format!("{}\n7", with("\"127.0.0.1:9\"")), "line 5: the file is not JSON at column 1: trailing characters".to_owned()),
        ("[]".to_owned(), "line 1: the file holds a list; expected a JSON object".to_owned()),
    ] {
        assert_eq!(read(&text).unwrap_err(), expected, "{text}");
    }
}

#[test]
fn a_byte_order_mark_and_other_line_ends_are_accepted() {
    let text = "\u{FEFF}{\r\n\"name\": \"a\",\r\n\"listen\": \"127.0.0.1:9\"}\r\n";
    assert!(read(text).is_ok());
    let error = read(&text.replace(":9", "")).unwrap_err();
    assert!(error.starts_with("line 3: listen: "), "{error}");
    assert_eq!(read_json::<File>(&[0xFF], |_| None).unwrap_err().line, 1);
}

#[test]
fn lines_are_found_in_any_text() {
    let text = b"{\"a\": \"}\\\"{\",\n\"b\": [1, [2],\n{\"c.d\": 1,\n\"e\": true}],\n\"f\" : -1}";
    for (field, line) in [
        ("", 1),
        ("b", 2),
        ("b[1]", 2),
        ("b[2]", 3),
        ("b[2].e", 4),
        ("b[2].nothing", 3),
        ("b[7]", 2),
        ("f", 5),
        ("f.g", 5),
    ] {
        assert_eq!(line_of(text, field), line, "{field}");
    }
    for cut in 0..text.len() {
        assert!(line_of(&text[..cut], "b[2].e") <= 4);
    }
    // Deep nesting is skipped without recursion.
    let deep = "[".repeat(100_000);
    assert_eq!(line_of(deep.as_bytes(), "a[3]"), 1);
}
