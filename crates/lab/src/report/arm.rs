//! Colours and markers of arms, the same in every chart.

/// Colour and marker of a line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Style {
    /// A CSS colour; `currentColor` follows the page's text.
    pub colour: &'static str,
    /// Marker at each point.
    pub marker: Marker,
    /// Dashes of the line; empty: none.
    pub dashes: &'static str,
}

/// Shape of a marker, filled except for the cross.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marker {
    Circle,
    Square,
    Diamond,
    Triangle,
    Cross,
}

/// The arm's style. User space is blue and the kernel orange for every server; a peer's line is dashed. The hues are by
/// Okabe and Ito, and can be distinguished with any colour vision.
pub(crate) fn style(arm: &str) -> Style {
    match arm {
        "user" => Style { colour: "#0072B2", marker: Marker::Circle, dashes: "" },
        "kernel" => Style { colour: "#D55E00", marker: Marker::Square, dashes: "" },
        "auto" => Style { colour: "#009E73", marker: Marker::Diamond, dashes: "" },
        "nic" => Style { colour: "#CC79A7", marker: Marker::Triangle, dashes: "" },
        "nginx" => Style { colour: "#3E9BD8", marker: Marker::Circle, dashes: "7 4" },
        "nginx-ktls" => Style { colour: "#E69F00", marker: Marker::Square, dashes: "7 4" },
        "user-log" => Style { colour: "#009E73", marker: Marker::Square, dashes: "" },
        "user-metrics" => Style { colour: "#CC79A7", marker: Marker::Diamond, dashes: "" },
        "user-sites" => Style { colour: "#8C6BB1", marker: Marker::Triangle, dashes: "" },
        "user-two" => Style { colour: "#7F7F7F", marker: Marker::Square, dashes: "" },
        "nginx-log" => Style { colour: "#009E73", marker: Marker::Square, dashes: "7 4" },
        "nginx-files" => Style { colour: "#8C6BB1", marker: Marker::Triangle, dashes: "7 4" },
        "user-h2" => Style { colour: "#CC79A7", marker: Marker::Diamond, dashes: "" },
        "nginx-h2" => Style { colour: "#CC79A7", marker: Marker::Diamond, dashes: "7 4" },
        "user-h3" => Style { colour: "#56B4E9", marker: Marker::Triangle, dashes: "" },
        "nginx-h3" => Style { colour: "#56B4E9", marker: Marker::Triangle, dashes: "7 4" },
        _ => Style { colour: "currentColor", marker: Marker::Cross, dashes: "2 3" },
    }
}

/// Place of an arm in tables and labels.
pub(crate) fn order(arm: &str) -> usize {
    ORDER.iter().position(|name| *name == arm).unwrap_or(ORDER.len())
}

/// The arm of the same server in user space, the base of ratios of `arm`. `None` for that arm itself and for unknown
/// servers.
pub(crate) fn user_space_of(arm: &str) -> Option<&'static str> {
    match arm {
        "kernel" | "auto" | "nic" => Some("user"),
        "nginx-ktls" => Some("nginx"),
        "nginx-log-ktls" => Some("nginx-log"),
        "nginx-default-ktls" => Some("nginx-default"),
        "kernel-limited" => Some("user-limited"),
        "nginx-ktls-limited" => Some("nginx-limited"),
        "kernel-vegeta" => Some("user-vegeta"),
        "nginx-ktls-vegeta" => Some("nginx-vegeta"),
        _ => None,
    }
}

const ORDER: [&str; 16] = [
    "user",
    "kernel",
    "auto",
    "nic",
    "user-log",
    "user-metrics",
    "user-sites",
    "user-two",
    "nginx",
    "nginx-ktls",
    "nginx-log",
    "nginx-files",
    "user-h2",
    "nginx-h2",
    "user-h3",
    "nginx-h3",
];
