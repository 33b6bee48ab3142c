#include "lora/files/missing.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "base/cat.h"

namespace motley::lora {

namespace {

constexpr std::array expert_projections = {Projection::expert_gate, Projection::expert_up,
                                           Projection::expert_down};
constexpr std::array dense_block = {Projection::gate, Projection::up, Projection::down};
constexpr std::array shared_block = {Projection::shared_gate, Projection::shared_up,
                                     Projection::shared_down};

bool holds(std::span<const Projection> list, Projection projection) {
  return std::ranges::find(list, projection) != list.end();
}

// A module's path before and after the number of its layer: "model." and "self_attn.q_proj".
struct Split {
  std::string_view before;
  std::string_view after;
};

std::optional<Split> split_at_layer(std::string_view path) {
  constexpr std::string_view word = "layers.";
  const std::size_t at = path.find(word);
  if (at == std::string_view::npos) return std::nullopt;
  const std::size_t dot = path.find('.', at + word.size());
  if (dot == std::string_view::npos) return std::nullopt;
  return Split{path.substr(0, at), path.substr(dot + 1)};
}

// How the file spells modules, to name the ones it lacks.
class Spelling {
 public:
  Spelling(const Units& units, const BaseView& base) : names_(base.block_names()) {
    for (const auto& [module, unit] : units) {
      const auto split = split_at_layer(unit.path);
      if (!split) continue;
      before_ = split->before;
      if (!is_of_experts(module.form)) {
        own_.emplace(module.site.projection, split->after);
      } else {
        take_expert(module, split->after);
      }
    }
  }

  std::string layer(std::int32_t layer) const { return cat(before_, "layers.", layer, "."); }

  std::string plain(Site site) const {
    if (site.projection == Projection::lm_head) return "lm_head";
    if (site.layer < 0) return cat(before_, name(site.projection));
    const auto own = own_.find(site.projection);
    if (own != own_.end()) return layer(site.layer) + own->second;
    if (site.projection == Projection::router) return cat(layer(site.layer), "mlp.", names_.router);
    if (holds(shared_block, site.projection)) {
      const std::string_view word =
          name(dense_block[static_cast<std::size_t>(site.projection) -
                           static_cast<std::size_t>(Projection::shared_gate)]);
      return cat(layer(site.layer), "mlp.", names_.shared_expert, ".", word.substr(4));
    }
    return cat(layer(site.layer), name(site.projection));
  }

  // The name for one expert, or for all of them if `expert` is negative.
  std::string expert(Site site, int expert) const {
    const std::size_t part = part_of(site.projection);
    const std::string number = expert < 0 ? "*" : cat(expert);
    if (linears_) {
      constexpr std::array<std::string_view, 3> words = {"gate_up_projs", "gate_up_projs",
                                                         "down_projs"};
      return cat(layer(site.layer), experts_, ".", words[part], ".", number);
    }
    return cat(layer(site.layer), experts_, ".", number, ".", leaf(part));
  }

  // The name for all experts: "experts.w1", and "experts.down_projs" before an expert's number.
  std::string outer(Site site) const {
    const std::size_t part = part_of(site.projection);
    if (linears_)
      return cat(layer(site.layer), experts_, part == 2 ? ".down_projs" : ".gate_up_projs");
    if (fused_outer_ && part < 2) return cat(layer(site.layer), experts_, ".gate_up_proj");
    return cat(layer(site.layer), experts_, ".", leaf(part));
  }

  // The names that a parameter of a layer's expert block may have.
  std::vector<std::string> block_parameters(std::int32_t layer, std::string_view rest) const {
    std::set<std::string_view> blocks = {"mlp", names_.moe};
    if (!experts_.empty()) blocks.insert(std::string_view(experts_).substr(0, experts_.rfind('.')));
    std::vector<std::string> names;
    for (const std::string_view block : blocks)
      names.push_back(cat(this->layer(layer), block, ".", rest));
    return names;
  }

  const BlockNames& names() const { return names_; }

  // The last word of an expert's module: "gate_proj", "w1".
  std::string_view leaf(Projection projection) const { return leaf(part_of(projection)); }

 private:
  static std::size_t part_of(Projection projection) {
    return static_cast<std::size_t>(projection) - static_cast<std::size_t>(Projection::expert_gate);
  }

  std::string_view leaf(std::size_t part) const {
    static constexpr std::array<std::string_view, 3> words = {"gate_proj", "up_proj", "down_proj"};
    static constexpr std::array<std::string_view, 3> numbered = {"w1", "w3", "w2"};
    return (numbered_ ? numbered : words)[part];
  }

  void take_expert(const Module& module, std::string_view after) {
    constexpr std::string_view word = "experts";
    const std::size_t at = after.find(word);
    if (at == std::string_view::npos) return;
    experts_ = std::string(after.substr(0, at + word.size()));
    if (module.form == Form::linear || after.find("_projs.") != std::string_view::npos)
      linears_ = true;
    if (module.form == Form::outer_gate_up) fused_outer_ = true;
    if (after.ends_with(".w1") || after.ends_with(".w2") || after.ends_with(".w3"))
      numbered_ = true;
  }

  BlockNames names_;
  std::string before_ = "model.";
  std::map<Projection, std::string> own_;  // behind the layer's number
  std::string experts_ = "mlp.experts";
  bool numbered_ = false;     // w1, w3, w2
  bool linears_ = false;      // gate_up_projs.{e}, down_projs.{e}
  bool fused_outer_ = false;  // gate_up_proj of three dimensions
};

class Finder {
 public:
  Finder(const Units& units, const std::map<Site, SiteDelta>& deltas, const Config& config,
         const BaseView& base)
      : config_(config), base_(base), deltas_(deltas), spelling_(units, base) {
    for (const SiteSpec& spec : base.sites()) specs_[spec.site] = &spec;
    for (const auto& [module, unit] : units) take(module, unit);
  }

  Missing find() {
    if (config_.targets.kind() != Targets::Kind::unknown) {
      for (const SiteSpec& spec : base_.sites()) {
        if (!is_expert(spec.site.projection)) check_plain(spec.site);
      }
      for (const SiteSpec& spec : base_.sites()) {
        if (spec.site.projection == Projection::expert_gate) check_experts(spec);
      }
    }
    check_parameters();
    std::vector<std::string> kinds(kinds_.begin(), kinds_.end());
    return {std::move(missing_), std::move(kinds)};
  }

 private:
  // There is no list that says which kinds of modules must occur.
  bool any_kind() const {
    return config_.targets.kind() == Targets::Kind::none ||
           config_.targets.kind() == Targets::Kind::all_linear;
  }

  void take(const Module& module, const Unit& unit) {
    const Site site = module.site;
    const bool a = unit.part(Part::a) != nullptr || unit.part(Part::embedding_a) != nullptr;
    const bool b = unit.part(Part::b) != nullptr || unit.part(Part::embedding_b) != nullptr;
    if (!a && !b) return;
    const Site up{site.layer, Projection::expert_up};
    switch (module.form) {
      case Form::plain:
      case Form::some_rows:
        add(site);
        break;
      case Form::expert:
        add_expert(site, module.expert);
        break;
      case Form::linear:
        add_expert(site, module.expert);
        add_expert(up, module.expert);
        break;
      case Form::outer:
        // A factor that experts share does not show that any single expert is adapted.
        if (a && b) add_expert(site, -1);
        break;
      case Form::outer_gate_up:
        add_expert(site, -1);
        add_expert(up, -1);
        break;
      case Form::packed:
      case Form::packed_inner:
        packed_ = true;
        break;
    }
  }

  void add(Site site) {
    occurs_.insert(site);
    kinds_that_occur_.insert(site.projection);
  }

  void add_expert(Site site, int expert) {
    const auto spec = specs_.find(site);
    if (spec == specs_.end()) return;
    std::vector<bool>& alone = experts_[site];
    alone.resize(static_cast<std::size_t>(spec->second->experts));
    if (expert < 0) {
      std::fill(alone.begin(), alone.end(), true);
    } else {
      alone[static_cast<std::size_t>(expert)] = true;
    }
    add(site);
    modules_of_experts_ = true;
  }

  bool occurs(Site site) const { return occurs_.contains(site); }
  bool kind_occurs(Projection projection) const { return kinds_that_occur_.contains(projection); }
  // A dense block or shared expert that the list names only by a word of the expert projections, in
  // a file that adapts only experts.
  bool means_experts_alone(Site site, std::string_view path) const {
    const Projection projection = site.projection;
    const bool is_dense = holds(dense_block, projection);
    if (!is_dense && !holds(shared_block, projection)) return false;
    if (!modules_of_experts_ || !std::ranges::all_of(kinds_that_occur_, is_expert)) return false;
    if (is_dense && config_.targets.selects_layers()) return false;
    return config_.targets.names_by_last_word(path) && spells_experts_as(path);
  }

  // Whether the file's experts have modules with this path's last word: the list may mean those.
  bool spells_experts_as(std::string_view path) const {
    const std::string_view word = path.substr(path.rfind('.') + 1);
    return std::ranges::any_of(expert_projections, [&](Projection projection) {
      const std::string_view own = spelling_.leaf(projection);
      return kind_occurs(projection) && own == word;
    });
  }

  // "all-linear" names both halves of latent attention: a file that has one has lost the other.
  bool lacks_half(Projection projection) const {
    static constexpr std::array<std::pair<Projection, Projection>, 2> halves = {
        {{Projection::q_a, Projection::q_b}, {Projection::kv_a, Projection::kv_b}}};
    if (config_.targets.kind() != Targets::Kind::all_linear) return false;
    return std::ranges::any_of(halves, [&](const auto& pair) {
      return (projection == pair.first && kind_occurs(pair.second)) ||
             (projection == pair.second && kind_occurs(pair.first));
    });
  }

  void check_plain(Site site) {
    if (occurs(site)) return;
    const Projection projection = site.projection;
    const bool table = site.layer < 0;
    if (any_kind() && table) return;
    const std::string path = spelling_.plain(site);
    if (!config_.targets.names(path, {.layer = site.layer})) return;
    const bool nowhere = !kind_occurs(projection);
    if (nowhere && projection == Projection::router && !any_kind()) return;
    const bool passes = any_kind() ? !lacks_half(projection) : means_experts_alone(site, path);
    if (nowhere && passes) {
      pass_over(site);
    } else {
      missing_.push_back(path);
    }
  }

  // Only reported if the file is expected to hold modules.
  void pass_over(Site site) {
    if (config_.targets.kind() == Targets::Kind::none && !config_.target_parameters.empty()) return;
    const std::string path = spelling_.plain(site);
    kinds_.emplace(split_at_layer(path)->after);
  }

  bool names_expert(Site site, int expert) const {
    const ModulePlace place{.layer = site.layer, .expert = expert};
    return config_.targets.names(spelling_.expert(site, expert), place) ||
           config_.targets.names(spelling_.outer(site), place);
  }

  // Whether the configuration selects the layer of these experts.
  bool names_layer(const SiteSpec& spec) const {
    const ModulePlace place{.layer = spec.site.layer};
    if (config_.targets.names(spelling_.outer(spec.site), place)) return true;
    for (int e = 0; e < spec.experts; ++e) {
      if (config_.targets.names(spelling_.expert(spec.site, e), place)) return true;
    }
    return false;
  }

  void check_experts(const SiteSpec& gate) {
    const std::int32_t layer = gate.site.layer;
    if (!modules_of_experts_) {
      if (any_kind() && !packed_) kinds_.insert("mlp.experts");
      return;
    }
    std::vector<bool> some(static_cast<std::size_t>(gate.experts));
    for (const Projection projection : expert_projections) {
      const auto found = experts_.find({layer, projection});
      if (found == experts_.end()) continue;
      for (std::size_t e = 0; e < some.size(); ++e) some[e] = some[e] || found->second[e];
    }
    for (const Projection projection : expert_projections) {
      const Site site{layer, projection};
      const auto found = experts_.find(site);
      if (found == experts_.end() && kind_occurs(projection) && names_layer(*specs_.at(site))) {
        missing_.push_back(spelling_.expert(site, -1));
        continue;
      }
      if (any_kind() && !kind_occurs(projection)) {
        kinds_.emplace(split_at_layer(spelling_.outer(site))->after);
        continue;
      }
      for (std::size_t e = 0; e < some.size(); ++e) {
        if (!some[e] || (found != experts_.end() && found->second[e])) continue;
        const int expert = static_cast<int>(e);
        if (names_expert(site, expert)) missing_.push_back(spelling_.expert(site, expert));
      }
    }
  }

  void check_parameters() {
    const NameList wanted(config_.target_parameters);
    if (wanted.empty()) return;
    for (const SiteSpec& spec : base_.sites()) {
      const Site site = spec.site;
      if (site.projection == Projection::expert_gate) {
        check_packed(wanted, site.layer);
      } else if (!is_expert(site.projection) && site.projection != Projection::embed) {
        check_parameter(wanted, site);
      }
    }
  }

  static bool named(const NameList& wanted, const std::vector<std::string>& names) {
    return std::ranges::any_of(names, [&](const std::string& each) { return wanted.names(each); });
  }

  void check_parameter(const NameList& wanted, Site site) {
    if (occurs(site)) return;
    const std::string path = cat(spelling_.plain(site), ".weight");
    const bool is_named =
        wanted.names(path) ||
        (site.projection == Projection::router &&
         named(wanted,
               spelling_.block_parameters(site.layer, cat(spelling_.names().router, ".weight"))));
    if (is_named) missing_.push_back(path);
  }

  void check_packed(const NameList& wanted, std::int32_t layer) {
    for (const bool down : {false, true}) {
      const Site site{layer, down ? Projection::expert_down : Projection::expert_gate};
      if (occurs(site) || deltas_.contains(site)) continue;
      const auto names =
          spelling_.block_parameters(layer, down ? "experts.down_proj" : "experts.gate_up_proj");
      if (named(wanted, names)) missing_.push_back(names.front());
    }
  }

  const Config& config_;
  const BaseView& base_;
  const std::map<Site, SiteDelta>& deltas_;
  Spelling spelling_;
  std::map<Site, const SiteSpec*> specs_;
  std::set<Site> occurs_;
  std::set<Projection> kinds_that_occur_;
  std::map<Site, std::vector<bool>> experts_;  // which experts have modules of their own
  bool packed_ = false;
  bool modules_of_experts_ = false;
  std::vector<std::string> missing_;
  std::set<std::string> kinds_;
};

}  // namespace

Missing find_missing(const Units& units, const std::map<Site, SiteDelta>& deltas,
                     const Config& config, const BaseView& base) {
  return Finder(units, deltas, config, base).find();
}

}  // namespace motley::lora
