use super::*;
use crate::report::arm;
use crate::units;

fn chart(series: &[(&str, &[f64])], y_scale: Scale) -> Chart {
    let line = |(name, values): &(&str, &[f64])| Series {
        name: (*name).to_owned(),
        style: arm::style(name),
        points: (0..)
            .zip(*values)
            .map(|(power, &y)| Point { x: 1024.0 * 8f64.powi(power), y, low: y * 0.9, high: y * 1.2 })
            .collect(),
    };
    Chart {
        title: "CPU per request <&\">".into(),
        subtitle: "less is better; bars show the spread of rounds".into(),
        x_title: "file size".into(),
        y_title: "µs".into(),
        x_ticks: (0..10).map(|power| 1024.0 * 8f64.powi(power)).map(|size| (size, units::size(size))).collect(),
        y_format: units::time,
        y_scale,
        series: series.iter().map(line).collect(),
        level: Some((12_000.0, "a level".into())),
        place: Some((40_000.0, "crossover at 39k".into())),
    }
}

fn no_overlap(chart: &Chart) {
    let labels = chart.labels();
    for (index, one) in labels.iter().enumerate() {
        for other in &labels[index + 1..] {
            assert!(!one.overlaps(other), "in {:?}: {one:?} and {other:?}", chart.title);
        }
        assert!(one.left >= 0.0 && one.left + one.width <= 600.0, "{one:?} leaves the chart");
        assert!(one.top >= 0.0 && one.top + one.height <= 370.0, "{one:?} leaves the chart");
    }
}

const CROWDED: &[(&str, &[f64])] = &[
    ("user", &[9_000.0, 12_000.0, 40_000.0, 300_000.0]),
    ("kernel", &[12_000.0, 13_000.0, 41_000.0, 301_000.0]),
    ("auto", &[9_100.0, 12_000.0, 40_500.0, 300_500.0]),
    ("nic", &[9_100.0, 12_000.0]),
    ("nginx", &[16_000.0, 17_000.0, 44_000.0, 302_000.0]),
    ("nginx-ktls", &[19_000.0, 18_000.0, 43_000.0, 300_200.0]),
    ("a.server.elsewhere:8443", &[19_000.0, 18_000.0, 43_000.0, 299_000.0]),
];

#[test]
fn texts_do_not_overlap() {
    for scale in [Scale::Logarithmic, Scale::FromZero] {
        no_overlap(&chart(CROWDED, scale));
        no_overlap(&chart(&CROWDED[..1], scale));
        no_overlap(&chart(&[("user", &[5.0])], scale));
        let flat: &[(&str, &[f64])] = &[("user", &[3.0; 10]), ("kernel", &[3.0; 10])];
        no_overlap(&chart(flat, scale));
    }
}

#[test]
fn well_formed_whatever_the_names_say() {
    let mut chart = chart(CROWDED, Scale::Logarithmic);
    chart.series[0].name = "<b>&\"".into();
    let svg = chart.svg();
    let document = roxmltree::Document::parse(&svg).expect("XML");
    let texts: Vec<_> = document.descendants().filter_map(|node| node.text()).collect();
    assert!(texts.contains(&"<b>&\""), "{texts:?}");
    let lines = document.descendants().filter(|node| node.tag_name().name() == "polyline").count();
    assert_eq!(lines, CROWDED.len());
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
}

#[test]
fn nothing_to_draw_is_drawn_without_harm() {
    let empty = chart(&[("user", &[])], Scale::Logarithmic);
    assert!(empty.is_empty());
    roxmltree::Document::parse(&empty.svg()).expect("XML");
    assert!(!empty.svg().contains("NaN"));
}
