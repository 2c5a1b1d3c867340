use super::*;
use crate::ErrorCode;

/// The lines that `block` decodes to.
fn lines(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<String>, ConnectionError> {
    let (mut out, mut lines) = (Vec::new(), Vec::new());
    let mut block = decoder.block(block);
    while let Some(span) = block.next(&mut out)? {
        let line = String::from_utf8(out[span.start..].to_vec()).unwrap();
        assert_eq!(&line.as_bytes()[span.name_len..span.value_start() - span.start], SEPARATOR);
        lines.push(line);
    }
    Ok(lines)
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn decoder(limit: usize) -> Decoder {
    let mut decoder = Decoder::new();
    decoder.table.resize(limit);
    decoder
}

/// Blocks of one connection with their lines, and the size of the dynamic table after each.
type Story<'a> = &'a [(&'a str, &'a [&'a str], usize)];

fn check(limit: usize, story: Story<'_>) {
    let mut decoder = decoder(limit);
    for (block, expected, size) in story {
        assert_eq!(lines(&mut decoder, &bytes(block)).unwrap(), *expected);
        assert_eq!(decoder.table.size(), *size);
    }
}

/// RFC 7541 §C.2.
#[test]
fn literals_of_the_rfc() {
    check(
        4096,
        &[("400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572", &["custom-key: custom-header"], 55)],
    );
    check(4096, &[("040c 2f73 616d 706c 652f 7061 7468", &[":path: /sample/path"], 0)]);
    check(4096, &[("1008 7061 7373 776f 7264 0673 6563 7265 74", &["password: secret"], 0)]);
    check(4096, &[("82", &[":method: GET"], 0)]);
}

const REQUESTS: [&[&str]; 3] = [
    &[":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com"],
    &[":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com", "cache-control: no-cache"],
    &[
        ":method: GET",
        ":scheme: https",
        ":path: /index.html",
        ":authority: www.example.com",
        "custom-key: custom-value",
    ],
];

/// RFC 7541 §C.3 and §C.4.
#[test]
fn requests_of_the_rfc() {
    check(
        4096,
        &[
            ("8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d", REQUESTS[0], 57),
            ("8286 84be 5808 6e6f 2d63 6163 6865", REQUESTS[1], 110),
            ("8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65", REQUESTS[2], 164),
        ],
    );
    check(
        4096,
        &[
            ("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff", REQUESTS[0], 57),
            ("8286 84be 5886 a8eb 1064 9cbf", REQUESTS[1], 110),
            ("8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf", REQUESTS[2], 164),
        ],
    );
}

const RESPONSES: [&[&str]; 3] = [
    &[
        ":status: 302",
        "cache-control: private",
        "date: Mon, 21 Oct 2013 20:13:21 GMT",
        "location: https://www.example.com",
    ],
    &[
        ":status: 307",
        "cache-control: private",
        "date: Mon, 21 Oct 2013 20:13:21 GMT",
        "location: https://www.example.com",
    ],
    &[
        ":status: 200",
        "cache-control: private",
        "date: Mon, 21 Oct 2013 20:13:22 GMT",
        "location: https://www.example.com",
        "content-encoding: gzip",
        "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
    ],
];

/// RFC 7541 §C.5 and §C.6: a table of 256 bytes, from which entries are evicted.
#[test]
fn responses_of_the_rfc() {
    check(
        256,
        &[
            (
                "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32
                 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
                RESPONSES[0],
                222,
            ),
            ("4803 3330 37c1 c0bf", RESPONSES[1], 222),
            (
                "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970
                 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61
                 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
                RESPONSES[2],
                215,
            ),
        ],
    );
    check(
        256,
        &[
            (
                "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad
                 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
                RESPONSES[0],
                222,
            ),
            ("4883 640e ffc1 c0bf", RESPONSES[1], 222),
            (
                "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2
                 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
                RESPONSES[2],
                215,
            ),
        ],
    );
}

#[test]
fn a_block_that_breaks_the_rules_loses_the_connection() {
    for (block, why) in [
        ("80", "index 0"),
        ("be", "an index beyond the table"),
        ("ffff ffff 7f", "a huge index"),
        ("7e 00", "the name of an entry that is not there"),
        ("40", "no name"),
        ("40 01", "a name that is missing"),
        ("40 01 61", "no value"),
        ("40 01 61 05 61", "a value that ends early"),
        ("40 ff ff ff ff ff 0f", "a length beyond five bytes"),
        ("00 81 ff 01 61", "Huffman padding of eight bits"),
        ("82 20", "a size update behind a field"),
        ("3f e2 1f", "a size update to 4097"),
        ("3f", "a size update that ends early"),
    ] {
        let error = lines(&mut Decoder::new(), &bytes(block)).unwrap_err();
        assert_eq!(error.code, ErrorCode::COMPRESSION_ERROR, "{why}");
    }
}

#[test]
fn a_block_cut_anywhere_is_an_error_or_a_shorter_block() {
    let block = bytes(
        "3f01 8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf 1008 7061 7373 776f 7264 0673 6563 7265 74",
    );
    for end in 0..block.len() {
        let mut decoder = Decoder::new();
        decoder.table.insert(Line { name: b"a", value: b"b", name_is_static: false });
        if let Ok(lines) = lines(&mut decoder, &block[..end]) {
            assert!(lines.len() < 6);
        }
    }
}

#[test]
fn the_size_of_the_table_follows_updates_up_to_the_limit() {
    let mut decoder = Decoder::new();
    let custom = "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572";
    lines(&mut decoder, &bytes(custom)).unwrap();
    // Several updates at the start of a block: the lowest evicts, and the last one counts (RFC 7541 §4.2).
    assert_eq!(lines(&mut decoder, &bytes("20 3f e1 1f 82")).unwrap(), [":method: GET"]);
    assert_eq!((decoder.table.size(), decoder.table.max_size()), (0, 4096));
    lines(&mut decoder, &bytes("be")).unwrap_err();
}

#[test]
fn a_limit_that_fell_has_to_be_answered_by_a_size_update() {
    let mut decoder = Decoder::new();
    decoder.set_limit(100);
    assert_eq!(lines(&mut decoder, &bytes("82")), Err(UPDATE_MISSING));
    assert_eq!(lines(&mut decoder, &bytes("")), Err(UPDATE_MISSING));
    lines(&mut decoder, &bytes("3f e1 1f")).unwrap_err();
    assert_eq!(lines(&mut decoder, &bytes("3f 45 82")).unwrap(), [":method: GET"]);
    assert_eq!(decoder.table.max_size(), 100);
    lines(&mut decoder, &bytes("82")).unwrap();
    decoder.set_limit(4096);
    lines(&mut decoder, &bytes("82")).unwrap();
}
