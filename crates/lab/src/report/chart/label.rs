//! Texts of a chart and their sizes.

/// A text and its box, in the chart's units.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Label {
    pub text: String,
    pub left: f64,
    pub top: f64,
    /// The width, an upper estimate.
    pub width: f64,
    pub height: f64,
}

impl Label {
    /// Whether the boxes overlap.
    #[cfg(test)]
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.left < other.left + other.width
            && other.left < self.left + self.width
            && self.top < other.top + other.height
            && other.top < self.top + self.height
    }
}

/// The width of `text` in a sans-serif font of `size`: a generous estimate, since the reader chooses the font.
pub(super) fn width(text: &str, size: f64) -> f64 {
    let units: f64 = text
        .chars()
        .map(|letter| match letter {
            'i' | 'l' | 'j' | '.' | ',' | ':' | ';' | '\'' | '|' | ' ' | 't' | 'f' | 'r' | '(' | ')' | '-' => 0.4,
            'm' | 'w' | 'M' | 'W' | '%' | '—' => 0.95,
            letter if letter.is_uppercase() => 0.75,
            _ => 0.62,
        })
        .sum();
    units * size
}

/// Moves the places `wanted` apart so that they are at least `gap` from each other, within `low` to `high`. They stay
/// as near to their wanted places as one sweep in each direction achieves. Keeps their order, and returns them in the
/// order given.
pub(super) fn spread(wanted: &[f64], gap: f64, low: f64, high: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    // Clusters of touching labels are centred on the mean of their wanted places.
    let mut clusters: Vec<(f64, usize)> = Vec::new();
    let start = |&(mean, count): &(f64, usize)| {
        let length = (count - 1) as f64 * gap;
        (mean - length / 2.0).clamp(low, (high - length).max(low))
    };
    for index in &order {
        let mut cluster = (wanted[*index], 1);
        while let Some(last) = clusters.last() {
            if start(last) + last.1 as f64 * gap <= start(&cluster) {
                break;
            }
            let count = last.1 + cluster.1;
            cluster = ((last.0 * last.1 as f64 + cluster.0 * cluster.1 as f64) / count as f64, count);
            clusters.pop();
        }
        clusters.push(cluster);
    }
    let mut placed = vec![0.0; wanted.len()];
    let mut indices = order.into_iter();
    for cluster in &clusters {
        for step in 0..cluster.1 {
            if let Some(index) = indices.next() {
                placed[index] = start(cluster) + step as f64 * gap;
            }
        }
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_labels_stay_and_near_ones_part() {
        assert_eq!(spread(&[10.0, 50.0, 90.0], 14.0, 0.0, 100.0), [10.0, 50.0, 90.0]);
        assert_eq!(spread(&[50.0, 50.0], 14.0, 0.0, 100.0), [43.0, 57.0]);
        assert_eq!(spread(&[52.0, 10.0, 48.0], 14.0, 0.0, 100.0), [57.0, 10.0, 43.0]);
    }

    #[test]
    fn never_closer_than_the_gap_nor_outside() {
        let wanted = [99.0, 98.0, 97.0, 20.0, 3.0, 2.0, 95.0];
        let mut placed = spread(&wanted, 14.0, 0.0, 100.0);
        placed.sort_by(f64::total_cmp);
        assert!(placed[0] >= 0.0 && placed[6] <= 100.0, "{placed:?}");
        assert!(placed.windows(2).all(|pair| pair[1] - pair[0] >= 14.0 - 1e-9), "{placed:?}");
    }
}
